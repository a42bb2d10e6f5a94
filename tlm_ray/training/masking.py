"""Mask tokens as BERT does, independently at every step; keys are (seed, step, row), for any number of workers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The tokenizer's facts needed to prepare a batch."""

    size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    """tokens that are never masked, including padding"""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase") -> "Vocabulary":
        """Collect the facts from a tokenizer."""
        return cls(
            size=len(tokenizer),
            pad_id=tokenizer.pad_token_id,
            mask_id=tokenizer.mask_token_id,
            special_ids=tuple(tokenizer.all_special_ids),
        )


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Settings of masking (Devlin et al. 2019; the released code's defaults)."""

    share: float = 0.15
    """share of the non-special tokens to predict"""
    masked: float = 0.8
    """share of the chosen tokens that become [MASK]"""
    random: float = 0.1
    """share of the chosen tokens that become a random token; the others stay unchanged"""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"masking share {self.share}: must be above 0 and at most 1")
        if not (self.masked >= 0 and self.random >= 0 and self.masked + self.random <= 1):
            raise ValueError(f"masked {self.masked} and random {self.random}: must be 0 or more and sum to at most 1")

    def __call__(
        self, tokens: np.ndarray, vocabulary: Vocabulary, *, seed: int, step: int, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch.

        tokens: (rows, length) int64. rows: (rows,), numbers that key the draws. Returns the masked tokens and bool
        (rows, length), True where the original token must be predicted.
        """
        draws = uniform(seed=seed, step=step, rows=rows, columns=tokens.shape[1], draws=3)
        chosen = (draws[0] < self.share) & ~np.isin(tokens, vocabulary.special_ids)
        masked = np.where(chosen & (draws[1] < self.masked), vocabulary.mask_id, tokens)
        random = chosen & (draws[1] >= self.masked) & (draws[1] < self.masked + self.random)
        return np.where(random, (draws[2] * vocabulary.size).astype(np.int64), masked), chosen


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
