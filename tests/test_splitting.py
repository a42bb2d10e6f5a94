"""Passages: no word is lost or moved, none is too long, and they end where sentences end if that can be."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.corpus.general.splitting import BYTES_PER_TOKEN, split_document

ENGLISH = (
    "BM25 ranks passages by the words that they share with a query. It was published in 1994! Is it still used? "
    'Yes, by "Lucene." (And by others.) Nothing simpler is as good.'
)
CHINESE = "今天天气很好。我们去公园散步吧！你觉得怎么样？那里有很多花。"
LETTERS = st.characters(exclude_categories=["Cs"])
DOCUMENTS = st.text(LETTERS, max_size=300) | st.lists(
    st.sampled_from(
        ["word", "longer-word", "end.", "end!", 'said."', "\n\n", "\n", "語。", "文", "😀", "e\u0301", "a" * 40]
    ),
    max_size=120,
).map(" ".join)
TOKENS = st.integers(1, 40)


def size(text):
    return len(text.encode())


def without_space(text):
    return "".join(text.split())


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, TOKENS)
def test_nothing_but_space_is_lost(text, tokens):
    passages = split_document(text, passage_tokens=tokens)
    assert without_space("".join(passages)) == without_space(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{1,12}[.!?,]?", fullmatch=True), max_size=100), st.integers(4, 40))
def test_words_that_fit_stay_whole_and_in_order(words, tokens):
    passages = split_document(" ".join(words), passage_tokens=tokens)
    assert [word for passage in passages for word in passage.split()] == words


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, TOKENS)
def test_no_passage_is_empty_or_over_the_limit(text, tokens):
    for passage in split_document(text, passage_tokens=tokens):
        assert 0 < size(passage) <= tokens * BYTES_PER_TOKEN
        assert passage == passage.strip() != ""


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_a_short_document_is_one_passage_as_it_stands(text):
    tokens = size(text) // BYTES_PER_TOKEN + 1
    assert split_document(text, passage_tokens=tokens) == ([text.strip()] if text.strip() else [])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "bb", "ccc"]), min_size=1, max_size=8), min_size=1, max_size=30))
def test_passages_end_where_sentences_end(sentences):
    text = " ".join(" ".join(words) + "." for words in sentences)
    passages = split_document(text, passage_tokens=9)  # 36 bytes: longer than any sentence here
    assert all(passage.endswith(".") for passage in passages)
    assert " ".join(passages) == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=30), st.integers(8, 20))
def test_a_passage_takes_all_sentences_that_fit(lengths, tokens):
    passages = split_document(" ".join("x" * length + "." for length in lengths), passage_tokens=tokens)
    for before, after in pairwise(passages):
        assert size(before) + 1 + size(after.split()[0]) > tokens * BYTES_PER_TOKEN


def test_sentence_ends_of_english_are_found():
    passages = split_document(ENGLISH, passage_tokens=16)
    assert passages == [
        "BM25 ranks passages by the words that they share with a query.",
        'It was published in 1994! Is it still used? Yes, by "Lucene."',
        "(And by others.) Nothing simpler is as good.",
    ]


def test_sentence_ends_of_scripts_without_spaces_are_found():
    passages = split_document(CHINESE * 3, passage_tokens=12)
    assert len(passages) > 3
    assert all(re.search("[。！？]$", passage) for passage in passages)
    assert without_space("".join(passages)) == CHINESE * 3


def test_a_sentence_over_the_limit_is_cut_between_words():
    passages = split_document("word " * 100, passage_tokens=8)
    assert {word for passage in passages for word in passage.split()} == {"word"}
    assert {size(passage) for passage in passages[:-1]} == {29}  # six words and five spaces of 32 bytes


def test_paragraphs_end_sentences_without_a_full_stop():
    passages = split_document("A heading\n\n" + "one two three four. " * 3, passage_tokens=5)
    assert passages[0] == "A heading"


@pytest.mark.parametrize("word", ["a", "é", "語", "😀", "👩‍👩‍👧", "e\u0301", "ab😀"])
def test_a_word_of_a_megabyte_is_cut_between_characters(word):
    text = word * (1_000_000 // size(word))
    start = time.process_time()
    passages = split_document(text, passage_tokens=128)
    assert time.process_time() - start < 2  # a cut that copies the rest of the word takes much longer
    assert "".join(passages) == text
    assert max(map(size, passages)) <= 512
    assert len(passages) <= size(text) / 508 + 1


@pytest.mark.parametrize("text", ["", " \n\t ", "\u3000\u2003"])
def test_a_document_without_text_has_no_passages(text):
    assert split_document(text, passage_tokens=1) == []
