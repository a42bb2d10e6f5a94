"""Train a WordPiece tokenizer on the selected and task text, or open any Hugging Face tokenizer."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase

from tlm_ray.storage.opening import open_settings
from tlm_ray.training.tokens.masking import SENTINEL

PAD = "[PAD]"
SPECIAL = [PAD, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ALPHABET = 1000  # characters with a piece of their own, as in BERT's vocabulary; the rest are [UNK]
UNKNOWN = 1e-4  # maximum share of characters that become [UNK]; texts with Han characters need some thousands of pieces


def train_wordpiece(texts: Iterable[str], *, vocabulary: int, sentinels: int = 0) -> PreTrainedTokenizerBase:
    """Train BERT's uncased WordPiece on texts, deterministically.

    The trainer numbers pieces in hash-table order, which varies between runs, and breaks ties of frequency by these
    numbers. So the alphabet is chosen here: most frequent characters first, ties by code point. Its ## pieces are
    numbered here, as special tokens. TypeError if the texts are an iterator, because they are read twice.
    sentinels: number of tokens `<extra_id_0>` and so on, the last ones of the vocabulary.
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
        vocab_size=vocabulary - sentinels,
        special_tokens=SPECIAL + [f"##{c}" for c in kept if continues(c)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=True)
    if sentinels:
        trained.add_special_tokens({"extra_special_tokens": list(map(SENTINEL.format, range(sentinels)))})
    return trained


def _alphabet(counts: Counter[str], *, most: int) -> list[str]:
    """Return the characters with a piece of their own, most frequent first: 1,000, or more if too many are unknown."""
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    unknown = sum(counts[c] for c in ranked[ALPHABET:])
    allowed, size = UNKNOWN * sum(counts[c] for c in ranked), min(ALPHABET, len(ranked))
    while size < len(ranked) and size < most and unknown > allowed:
        unknown -= counts[ranked[size]]
        size += 1
    return ranked[:size]


def load_tokenizer(name: str | Path, *, needs: Sequence[str] = (), sentinels: int = 0) -> PreTrainedTokenizerBase:
    """Open a tokenizer by hub name or local folder, with an end for each row and a token for padding.

    needs: special tokens that must be there, such as mask_token, beside as many sentinels. A tokenizer without any
    special tokens in a row, as GPT-2's, ends each row with its end of text. It gets PAD if it has no other token for
    padding: classifiers of transformers read the last token that is not padding, so the end of text cannot be both.
    ValueError names the missing token.
    """
    try:
        tokenizer = open_settings(AutoTokenizer, name, use_fast=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer {str(name)!r} cannot be opened ({error}); give a hub name or a local folder"
        ) from error
    tokenizer.padding_side = "right"  # as in training
    end, lacks_end = tokenizer.eos_token, not tokenizer.num_special_tokens_to_add()
    if tokenizer.pad_token_id is None or (lacks_end and tokenizer.pad_token_id == tokenizer.eos_token_id):
        tokenizer.add_special_tokens({"pad_token": PAD})
    if end is not None and lacks_end:
        ids, pair = [(end, tokenizer.eos_token_id)], f"$A {end} $B:1 {end}:1"
        ended = processors.TemplateProcessing(single=f"$A {end}", pair=pair, special_tokens=ids)
        tokenizer.backend_tokenizer.post_processor = ended
    for needed in needs:
        if getattr(tokenizer, f"{needed}_id") is None:
            raise ValueError(
                f"tokenizer {str(name)!r} has no {needed}; an encoder's tokenizer is needed, such as BERT's, or a "
                "decoder's for a recipe with objectives=(Clm(),)"
            )
    if sentinels and SENTINEL.format(sentinels - 1) not in tokenizer.get_vocab():
        raise ValueError(
            f"tokenizer {str(name)!r} has no {SENTINEL.format(sentinels - 1)!r}, which the objective spans needs; give "
            "T5's, or tokenizer='trained'"
        )
    if not tokenizer.num_special_tokens_to_add():
        raise ValueError(f"tokenizer {str(name)!r} has no end of text, which ends each row; set its eos_token")
    return tokenizer


def frame_of(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after the text of a row, such as [CLS] and [SEP]."""
    text, row = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    starts = range(len(row) - len(text) + 1)
    start = next(start for start in starts if row[start : start + len(text)] == text)
    return row[:start], row[start + len(text) :]
