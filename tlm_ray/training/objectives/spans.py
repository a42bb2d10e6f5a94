"""Span corruption: the encoder reads text with gaps, and the decoder writes what was there.

Source: Raffel et al. 2020 (T5), sections 3.1.4 and 3.3.4, with the random spans of the released code.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.training.objectives.objective import Keys, Rows, Targets
from tlm_ray.training.objectives.written import Written
from tlm_ray.training.tokens.masking import NONE, Vocabulary, uniform

if TYPE_CHECKING:
    import torch

WIDTH_TO = 2  # widths are rounded up to a multiple, so that few shapes occur


@dataclass(frozen=True)
class Spans(Written):
    """Replaces random spans of a row by one sentinel each; the target is each sentinel with its span, then the end.

    Of n tokens, special ones apart, round(share n) are dropped, in round(dropped / length) spans. As a step's tokens
    are counted after that, its loss weighs about 0.9 of its weight.
    """

    name: ClassVar[str] = "spans"
    sentinels: ClassVar[int] = 100

    share: float = 0.15
    """share of the tokens to drop"""
    length: float = 3.0
    """mean length of a span, in tokens"""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"spans share {self.share}: must be above 0 and below 1")
        if not self.length >= 1:
            raise ValueError(f"spans length {self.length}: must be 1 or more tokens")

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return shorter rows; values are (rows, length) int64, and NONE after the end of a target."""
        seed, columns = keys.seed, rows.tokens.shape[1]
        draws = uniform(seed=seed, step=keys.step, rows=keys.rows, columns=columns, draws=2)
        plain = (rows.attention == 1) & ~np.isin(rows.tokens, vocabulary.special_ids)
        read, written = [], []
        for row, tokens in enumerate(rows.tokens):
            spans = np.zeros(columns, np.int64)
            spans[plain[row]] = self.spans(int(plain[row].sum()), draws[:, row])
            kept, target = _cut(tokens, rows.attention[row] == 1, spans, vocabulary)
            read.append(kept)
            written.append(target)
        tokens, attention = _padded(read, vocabulary.pad_id, most=columns)
        values, inside = _padded(written, NONE)
        short = replace(rows, tokens=tokens, attention=attention, types=None)
        return short.with_targets(self.name, Targets(values, None, int(inside.sum()), is_text=True))

    def spans(self, tokens: int, draws: np.ndarray) -> np.ndarray:
        """Return the number of each token's span, from 1 on, and 0 for kept tokens, int64 (tokens,).

        draws: uniform, (2, tokens or more). Text and spans take turns, text first; all cuts into parts of one token or
        more are equally likely.
        """
        if tokens < 2:
            return np.zeros(tokens, np.int64)
        dropped, count = self.count(tokens)
        lengths = np.stack([_parts(tokens - dropped, count, draws[0]), _parts(dropped, count, draws[1])], axis=1)
        numbers = np.stack([np.zeros(count, np.int64), np.arange(1, count + 1)], axis=1)
        return np.repeat(numbers.ravel(), lengths.ravel())

    def count(self, tokens: int) -> tuple[int, int]:
        """Return how many of two or more tokens are dropped, and in how many spans."""
        dropped = min(max(round(self.share * tokens), 1), tokens - 1)
        return dropped, min(max(round(dropped / self.length), 1), tokens - dropped)

    def check(self, *, tokens: int, before: Collection[str]) -> None:
        if tokens > 1 and (count := self.count(tokens)[1]) > self.sentinels:
            raise ValueError(
                f"objectives spans: rows of {tokens} tokens have {count} spans, and there are {self.sentinels} "
                "sentinels; give Spans(length=...) more tokens, or shorter rows"
            )

    def loss(self, head: Any, features: Any, prediction: Any) -> "torch.Tensor":
        return -head.log_probabilities(*features.rectangle, prediction.values).sum()


def _parts(total: int, count: int, draws: np.ndarray) -> np.ndarray:
    """Cut `total` tokens into `count` parts of one or more, at the places with the smallest draws."""
    cuts = np.sort(np.argsort(draws[: total - 1], kind="stable")[: count - 1]) + 1
    return np.diff(cuts, prepend=0, append=total)


def _cut(
    tokens: np.ndarray, inside: np.ndarray, spans: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the encoder reads of a row, and what the decoder writes."""
    dropped = np.flatnonzero(spans)
    _, first = np.unique(spans[dropped], return_index=True)
    if len(first) > len(vocabulary.sentinel_ids):
        raise ValueError(
            f"objective spans: a row has {len(first)} spans, and the tokenizer {len(vocabulary.sentinel_ids)} "
            "sentinels, such as <extra_id_0>; give Spans(length=...) more tokens, or shorter rows"
        )
    sentinels = np.array(vocabulary.sentinel_ids[: len(first)], np.int64)
    read = tokens.copy()
    read[dropped[first]] = sentinels
    kept = inside & (spans == 0)
    kept[dropped[first]] = True
    return read[kept], np.append(np.insert(tokens[dropped], first, sentinels), vocabulary.end_id)


def _padded(rows: list[np.ndarray], value: int, *, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows as one array, filled with a value, and int64 (rows, length), 1 where a row has a token."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max()) + -int(lengths.max()) % WIDTH_TO
    inside = np.arange(width if most is None else min(width, most)) < lengths[:, None]
    padded = np.full(inside.shape, value, np.int64)
    padded[inside] = np.concatenate(rows)
    return padded, inside.astype(np.int64)
