"""BERT's masking, drawn afresh at every step and keyed by (seed, step, row): the same on any number of workers."""

from dataclasses import dataclass

import numpy as np

MASKED_SHARE = 0.15  # of the tokens that are not special (Devlin et al. 2019; the released code's default)
MASK_BELOW, RANDOM_BELOW = 0.8, 0.9  # 80 % [MASK], 10 % a random token, 10 % unchanged
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How tokens are masked: the [MASK] id, the vocabulary's size and the special tokens, which are never masked."""

    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]
    share: float = MASKED_SHARE

    def __call__(self, tokens: np.ndarray, *, seed: int, step: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch.

        tokens: (rows, length) int64; rows: (rows,) the numbers that key the draws. Returns the masked tokens and
        bool (rows, length), True where the original token must be predicted.
        """
        draws = uniform(seed=seed, step=step, rows=rows, columns=tokens.shape[1], draws=3)
        chosen = (draws[0] < self.share) & ~np.isin(tokens, self.special_ids)
        masked = np.where(chosen & (draws[1] < MASK_BELOW), self.mask_id, tokens)
        random = chosen & (draws[1] >= MASK_BELOW) & (draws[1] < RANDOM_BELOW)
        return np.where(random, (draws[2] * self.vocabulary).astype(np.int64), masked), chosen


def uniform(*, seed: int, step: int, rows: np.ndarray, columns: int, draws: int) -> np.ndarray:
    """Return float64 (draws, len(rows), columns) in [0, 1): a pure function of (seed, step, row, column, draw)."""
    key = _mix(_mix(np.array([seed], np.uint64)) + np.uint64(step))
    rows = _mix(key + rows.astype(np.uint64) * GOLDEN)
    place = np.arange(columns * draws, dtype=np.uint64).reshape(columns, draws).T[:, None, :]
    return (_mix(rows[None, :, None] + place * GOLDEN) >> np.uint64(11)) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that passes as random on counters."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
