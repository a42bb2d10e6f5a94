"""Leaks of dev and test texts into the corpus, against sets of 13-grams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import words

from tlm_ray.retrieval.contamination import RUN_WORDS, Contamination

WORDS = ("the", "The", "cat", "sat", "語", "機械学習", "é", "on-a", "x", "...")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)
NUMBERED = [f"w{i}" for i in range(100)]


def grams(text, n=13):
    found = words(text)
    return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}


def leaks(passage, texts):
    """Say by definition whether a passage equals a text word for word or shares 13 words in a row with one."""
    return any((words(text) and words(passage) == words(text)) or grams(passage) & grams(text) for text in texts)


def find(texts, passages):
    return Contamination(texts).find(passages).tolist()


def test_the_run_is_thirteen_words():
    assert RUN_WORDS == 13


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS | st.none(), max_size=8))
def test_leaks_are_those_of_a_set_of_13_grams(texts, passages):
    found = Contamination(texts).find(passages)
    assert found.dtype == np.bool_
    assert found.tolist() == [bool(leaks(passage, texts)) for passage in passages]


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, TEXTS, st.integers(0, 30), st.integers(0, 30))
def test_a_piece_of_a_text_inside_a_passage_is_judged_by_definition(text, before, after, start, length):
    passage = " ".join([before, *text.split()[start : start + length], after])
    assert find([text], [passage]) == [bool(leaks(passage, [text]))]


@pytest.mark.parametrize("length", [11, 12, 13, 14])
@pytest.mark.parametrize("start", [0, 20, 86])
def test_twelve_words_in_common_are_kept_and_thirteen_dropped(length, start):
    passage = " ".join(["new", *NUMBERED[start : start + length], "words"])
    assert find([" ".join(NUMBERED)], [passage]) == [length >= 13]


@pytest.mark.parametrize("length", [1, 5, 12, 13, 50])
def test_a_passage_that_equals_a_text_is_dropped_whatever_its_length(length):
    text = " ".join(NUMBERED[:length])
    passages = [text, text.upper() + "!", f" {text}\n", f"{text} more", text[:-1] + "x", " ".join(NUMBERED[1:length])]
    longer = length >= 13
    assert find([text], passages) == [True, True, True, longer, length > 13, length > 13]


def test_a_short_text_inside_a_passage_is_no_leak():
    assert find(["a good film"], ["it was a good film indeed", "good film", "A good film."]) == [False, False, True]


def test_runs_do_not_reach_over_the_end_of_a_text_or_passage():
    one, two = " ".join(NUMBERED[:7]), " ".join(NUMBERED[7:14])
    assert find([one, two], [f"{one} {two}"]) == [False]
    assert find([" ".join(NUMBERED[:14])], [one, two]) == [False, False]


def test_the_same_words_in_another_order_are_no_leak():
    assert find([" ".join(NUMBERED[:20])], [" ".join(reversed(NUMBERED[:20]))]) == [False]


@pytest.mark.parametrize("texts", [[], ["", "...", "😀"]])
def test_texts_without_words_leak_nothing(texts):
    assert find(texts, ["", None, "...", "a b", " ".join(NUMBERED)]) == [False] * 5


def test_no_passages_are_no_answer():
    assert find([" ".join(NUMBERED)], []) == []


def test_only_the_leaking_passage_of_many_is_found():
    passages = [" ".join(f"p{i}x{j}" for j in range(30)) for i in range(2_000)]
    passages[1234] = "before " + " ".join(NUMBERED[40:53]) + " after"
    assert np.flatnonzero(Contamination([" ".join(NUMBERED)]).find(passages)).tolist() == [1234]
