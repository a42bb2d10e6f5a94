"""Mask tokens as BERT does, independently at every step; keys are (seed, step, row), for any number of workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count, takewhile
from typing import TYPE_CHECKING

import numpy as np

from tlm_ray.identity import LATER

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTINUES = "##"  # begins WordPiece's tokens that continue a word
ENDINGS = (".", "!", "?")
BEGINS = ("Ġ", "▁")  # begin the first token of a word in byte-level and SentencePiece vocabularies
NONE = -100  # no token to write; transformers' own number
SENTINEL = "<extra_id_{}>"  # T5's name of a gap
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The tokenizer's facts needed to prepare a batch."""

    size: int
    pad_id: int
    mask_id: int | None
    special_ids: tuple[int, ...]
    """tokens that are never masked, including padding"""
    continuing_ids: tuple[int, ...] = ()
    """tokens that continue a word"""
    ending_ids: tuple[int, ...] = ()
    """tokens that end a sentence"""
    sentinel_ids: tuple[int, ...] = ()
    """`<extra_id_0>`, `<extra_id_1>` and so on, which stand for gaps"""
    end_id: int = 0
    """the token that ends a text"""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase") -> "Vocabulary":
        """Collect the facts from a tokenizer."""
        tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        known = {token: number for number, token in enumerate(tokens)}
        return cls(
            size=len(tokenizer),
            pad_id=tokenizer.pad_token_id,
            mask_id=tokenizer.mask_token_id,
            special_ids=tuple(tokenizer.all_special_ids),
            continuing_ids=_continuing(tokens),
            ending_ids=tuple(number for number, token in enumerate(tokens) if token.lstrip("".join(BEGINS)) in ENDINGS),
            sentinel_ids=tuple(known[token] for token in takewhile(known.__contains__, map(SENTINEL.format, count()))),
            end_id=end_of(tokenizer),
        )


def end_of(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the token that ends a text: the end of a sequence or, as for BERT, the separator."""
    return tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id


def _continuing(tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the tokens that continue a word; without a mark in the vocabulary each token is a word.

    The mark that most tokens have counts, because GPT-2's vocabulary has "###" too.
    """
    counts = {mark: sum(token.startswith(mark) for token in tokens) for mark in (CONTINUES, *BEGINS)}
    mark = max(counts, key=counts.__getitem__)
    continues = mark == CONTINUES
    return tuple(n for n, token in enumerate(tokens) if token.startswith(mark) == continues) if counts[mark] else ()


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Settings of masking (Devlin et al. 2019; the released code's defaults)."""

    share: float = 0.15
    """share of the non-special tokens to predict"""
    masked: float = 0.8
    """share of the chosen tokens that become [MASK]"""
    random: float = 0.1
    """share of the chosen tokens that become a random token; the others stay unchanged"""
    words: int = field(default=0, metadata=LATER)
    """0: choose tokens one by one; n: choose spans of 1 to n whole words, of n words with a probability in proportion
    to 1/n (1: BERT's whole words; 3: ALBERT, Lan et al. 2020, section 4.1)"""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"masking share {self.share}: must be above 0 and at most 1")
        if not (self.masked >= 0 and self.random >= 0 and self.masked + self.random <= 1):
            raise ValueError(f"masked {self.masked} and random {self.random}: must be 0 or more and sum to at most 1")
        if self.words < 0:
            raise ValueError(f"masking words {self.words}: must be 0 (single tokens), 1 (whole words) or more")

    def __call__(
        self, tokens: np.ndarray, vocabulary: Vocabulary, *, seed: int, step: int, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch.

        tokens: (rows, length) int64. rows: (rows,), numbers that key the draws. Returns the masked tokens and bool
        (rows, length), True where the original token must be predicted.
        """
        draws = uniform(seed=seed, step=step, rows=rows, columns=tokens.shape[1], draws=4 if self.words else 3)
        special = np.isin(tokens, vocabulary.special_ids)
        if self.words:
            chosen = self._spans(_words(tokens, special, vocabulary, apart=self.words), special, draws[0], draws[3])
        else:
            chosen = (draws[0] < self.share) & ~special
        assert vocabulary.mask_id is not None, "a tokenizer is opened for what the objectives need"
        masked = np.where(chosen & (draws[1] < self.masked), vocabulary.mask_id, tokens)
        random = chosen & (draws[1] >= self.masked) & (draws[1] < self.masked + self.random)
        return np.where(random, (draws[2] * vocabulary.size).astype(np.int64), masked), chosen

    def _spans(self, words: np.ndarray, special: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return bool (rows, length), True in spans of words; starts, sizes: uniform draws."""
        shares = _lengths(self.words)
        begins = np.diff(words, axis=1, prepend=-1).astype(bool) & ~special
        lengths = 1 + np.searchsorted(np.cumsum(shares)[:-1], sizes, side="right")
        ends = np.where(begins & (starts < _rate(self.share, self.words)), words + lengths, 0)
        return (np.maximum.accumulate(ends, axis=1) > words) & ~special


def _lengths(most: int) -> np.ndarray:
    """Return the probabilities of spans of 1 to `most` words."""
    shares = 1 / np.arange(1, most + 1)
    return shares / shares.sum()


@cache
def _rate(share: float, most: int) -> float:
    """Return the probability that a span starts at a word, so that spans, which may overlap, cover a share of words."""
    from scipy.optimize import brentq  # here, because its import takes 0.3 s of every process

    reaches = np.cumsum(_lengths(most)[::-1])[::-1]  # probability that a span has more than 0, 1, ... words
    return brentq(lambda rate: 1 - np.prod(1 - rate * reaches) - share, 0, 1)


def _words(tokens: np.ndarray, special: np.ndarray, vocabulary: Vocabulary, *, apart: int) -> np.ndarray:
    """Number the words of each row, int64 (rows, length); special tokens add `apart`, so that no span crosses them."""
    continues = np.isin(tokens, vocabulary.continuing_ids)
    continues[:, 1:] &= ~special[:, :-1]  # a row may begin within a word
    continues[:, 0] = False
    return np.cumsum(np.where(special, apart, ~continues), axis=1)


def uniform(*, seed: int, step: int, rows: np.ndarray, columns: int, draws: int) -> np.ndarray:
    """Return float64 (draws, len(rows), columns) in [0, 1): a pure function of (seed, step, row, column, draw)."""
    key = _mix(_mix(np.array([seed], np.uint64)) + np.uint64(step))
    rows = _mix(key + rows.astype(np.uint64) * GOLDEN)
    place = np.arange(columns * draws, dtype=np.uint64).reshape(columns, draws).T[:, None, :]
    return (_mix(rows[None, :, None] + place * GOLDEN) >> np.uint64(11)) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    """Apply SplitMix64's finaliser (Steele, Lea and Flood 2014), a bijection that turns counters into random bits."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
