"""Trained and named tokenizers, against BERT's reference tokenizer in transformers."""

import unicodedata
from collections import Counter

import pytest
from transformers import AutoTokenizer, BertConfig, GPT2Tokenizer

from tlm_ray.training.tokens.tokenizer import ALPHABET, SPECIAL, load_tokenizer, train_wordpiece

TEXTS = [
    "The encoder reads each passage once; its ranks decide what is kept.",
    "Retrieval of passages, by BM25, for every labelled text of the task.",
    "Naïve café owners don't re-read unlabelled passages (2,048 of them).",
    "A passage is retrieved, tokenised and read by the encoder; the rest is not.",
] * 3
UNSEEN = "Unlabelled encoders re-tokenise 2048 naive passages!"


@pytest.fixture(scope="module")
def trained():
    return train_wordpiece(TEXTS, vocabulary=150)


def longest_match(word, vocabulary):
    """WordPiece's greedy rule (Devlin et al. 2019), written out."""
    pieces, start = [], 0
    while start < len(word):
        ends = [e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in vocabulary]
        if not ends:
            return ["[UNK]"]
        pieces.append(("##" if start else "") + word[start : ends[0]])
        start = ends[0]
    return pieces


def basic_words(text):
    """BERT's basic tokenisation: lower case, no accents, punctuation by itself."""
    text = unicodedata.normalize("NFD", text.lower())
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    return "".join(c if c.isalnum() else f" {c} " for c in text).split()


def test_special_tokens_come_first_and_are_known_as_special(trained):
    assert trained.convert_ids_to_tokens(range(5)) == SPECIAL
    ids = (trained.pad_token_id, trained.unk_token_id, trained.cls_token_id, trained.sep_token_id)
    assert (*ids, trained.mask_token_id) == (0, 1, 2, 3, 4)
    assert sorted(trained.all_special_ids) == [0, 1, 2, 3, 4]


def test_the_vocabulary_has_the_size_asked_for(trained):
    assert len(trained) == trained.vocab_size == 150
    assert sorted(trained.get_vocab().values()) == list(range(150))


@pytest.mark.parametrize("text", [*TEXTS[:4], UNSEEN, "ENCODER Encoder encoder", ""])
def test_pieces_are_the_longest_matches_of_words(trained, text):
    vocabulary = trained.get_vocab()
    expected = [piece for word in basic_words(text) for piece in longest_match(word, vocabulary)]
    assert trained.tokenize(text) == expected


def test_pairs_are_framed_and_typed_as_berts(trained):
    encoded = trained("the task", "the encoder", return_token_type_ids=True)
    first, second = (trained.convert_tokens_to_ids(trained.tokenize(t)) for t in ("the task", "the encoder"))
    assert encoded["input_ids"] == [2, *first, 3, *second, 3]
    assert encoded["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.parametrize("text", ["日本", "🙂", "Ω"])
def test_characters_never_seen_are_unknown(trained, text):
    assert set(trained(text, add_special_tokens=False)["input_ids"]) == {trained.unk_token_id}


def test_special_tokens_in_a_text_are_told_apart_from_its_words(trained):
    assert trained.mask_token_id in trained("a [MASK] b", add_special_tokens=False)["input_ids"]
    assert trained.mask_token_id not in trained("a mask b", add_special_tokens=False)["input_ids"]


def test_the_alphabet_is_the_most_frequent_characters_ties_by_code_point():
    characters = [chr(0x4E00 + i) for i in range(ALPHABET + 50)]
    often = characters[-1]
    vocabulary = train_wordpiece([" ".join(characters), often], vocabulary=2 * ALPHABET).get_vocab()
    kept = {c for c in characters if c in vocabulary}
    assert kept == {*characters[: ALPHABET - 1], often}
    assert not any(piece.startswith("##") for piece in vocabulary), "a Chinese character is a word by itself"


def test_frequent_words_become_one_piece(trained):
    counts = Counter(word for text in TEXTS for word in basic_words(text) if len(word) > 4)
    assert counts.most_common(1)[0][0] in trained.get_vocab()


def test_texts_that_end_after_one_pass_are_refused():
    with pytest.raises(TypeError, match="texts: an iterator ends after one pass"):
        train_wordpiece(iter(TEXTS), vocabulary=150)


def test_any_order_of_the_texts_gives_the_same_pieces(trained):
    assert train_wordpiece(TEXTS[::-1], vocabulary=150).get_vocab() == trained.get_vocab()


def test_a_saved_tokenizer_opens_again_as_it_was(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    for opened in (load_tokenizer(tmp_path), load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)):
        assert opened.get_vocab() == trained.get_vocab()
        for text in [*TEXTS, UNSEEN, "日本 Ω"]:
            assert opened(text)["input_ids"] == trained(text)["input_ids"]
        assert opened.all_special_ids == trained.all_special_ids


def test_a_tokenizer_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer '.*nowhere' cannot be opened .* give a hub name or a local"):
        load_tokenizer(tmp_path / "nowhere")


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    BertConfig(model_type="gpt2").save_pretrained(tmp_path)
    GPT2Tokenizer(vocab={"a": 0, "<|endoftext|>": 1}, merges=[]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no mask_token; an encoder's tokenizer is needed"):
        load_tokenizer(tmp_path, needs=("mask_token",))
