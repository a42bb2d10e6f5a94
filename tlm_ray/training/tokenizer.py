"""Train a WordPiece tokenizer on the selected and task text, or open any Hugging Face tokenizer."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase

from tlm_ray.storage.opening import open_settings

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ALPHABET = 1000  # characters with a piece of their own, as in BERT's vocabulary; the rest are [UNK]
UNKNOWN = 1e-4  # maximum share of characters that become [UNK]; texts with Han characters need some thousands of pieces


def train_wordpiece(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerBase:
    """Train BERT's uncased WordPiece on texts, deterministically.

    The trainer numbers pieces in hash-table order, which varies between runs, and breaks ties of frequency by these
    numbers. So the alphabet is chosen here: most frequent characters first, ties by code point. Its ## pieces are
    numbered here, as special tokens. TypeError if the texts are an iterator, because they are read twice.
    """
    if iter(texts) is texts:
        raise TypeError("texts: an iterator ends after one pass, but two are needed; give a list")
    normalizer, words = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    kept = _alphabet(counts, most=max(ALPHABET, vocabulary // 2))

    def continues(c: str) -> bool:  # neither punctuation nor Chinese characters, which are words by themselves
        return len(words.pre_tokenize_str(normalizer.normalize_str(f"a{c}"))) == 1

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL + [f"##{c}" for c in kept if continues(c)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=True)


def _alphabet(counts: Counter[str], *, most: int) -> list[str]:
    """Return the characters with a piece of their own, most frequent first: 1,000, or more if too many are unknown."""
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    unknown = sum(counts[c] for c in ranked[ALPHABET:])
    allowed, size = UNKNOWN * sum(counts[c] for c in ranked), min(ALPHABET, len(ranked))
    while size < len(ranked) and size < most and unknown > allowed:
        unknown -= counts[ranked[size]]
        size += 1
    return ranked[:size]


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Open a tokenizer by hub name or local folder; ValueError if it does not support masked language modelling."""
    try:
        tokenizer = open_settings(AutoTokenizer, name, use_fast=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer {str(name)!r} cannot be opened ({error}); give a hub name or a local folder"
        ) from error
    for needed in ("mask_token_id", "cls_token_id", "sep_token_id", "pad_token_id"):
        if getattr(tokenizer, needed) is None:
            raise ValueError(
                f"tokenizer {str(name)!r} has no {needed[:-3]}; an encoder's tokenizer is needed, such as BERT's"
            )
    return tokenizer
