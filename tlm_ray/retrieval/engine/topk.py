"""Store the best passages per query, and unite them over all queries."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class TopK:
    """Ranked passages per query: score descending, then passage id ascending."""

    ids: np.ndarray
    """int64 (queries, k), -1 where fewer than k passages match"""
    scores: np.ndarray
    """float32 (queries, k), 0 where fewer than k passages match"""


@dataclass(frozen=True)
class Selection:
    """Retrieved passages with their ranks."""

    passages: np.ndarray
    """int64: passage ids"""
    ranks: np.ndarray
    """int32: 0 for the best"""
    scores: np.ndarray
    """float32"""
    queries: np.ndarray
    """int64: the task row that chose it (at equal rank by higher score, then lower row); -1 for none"""

    @classmethod
    def of(cls, parts: "Sequence[Selection]") -> "Selection":
        """Concatenate several of them."""
        empty = cls(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int64))
        return cls(*(np.concatenate([getattr(part, f.name) for part in (empty, *parts)]) for f in fields(cls)))

    def take(self, order: np.ndarray | slice) -> "Selection":
        """Return the passages at some indices, in that order."""
        return Selection(*(getattr(self, field.name)[order] for field in fields(self)))

    def sorted(self) -> "Selection":
        """Return the passages by rank, then id."""
        return self.take(np.lexsort((self.passages, self.ranks)))

    def best(self) -> "Selection":
        """Return each passage once, with its best rank (the minimum, as in the released code), sorted."""
        order = np.lexsort((self.queries, -self.scores, self.ranks, self.passages))
        return self.take(order[np.unique(self.passages[order], return_index=True)[1]]).sorted()

    def to_table(self) -> pa.Table:
        """Return a table with a column per field."""
        return pa.table({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Selection":
        """Read a table by `to_table`."""
        return cls(*(table[field.name].to_numpy() for field in fields(cls)))


def best_ranks(top: TopK, rows: np.ndarray) -> Selection:
    """Unite the queries' neighbours with the best rank of each passage, sorted by rank, then passage id.

    rows: int64 (queries,), the task row of each query. The result for a smaller k is the prefix `ranks < k`.
    """
    query, rank = np.nonzero(top.ids >= 0)
    found = Selection(
        top.ids[query, rank], rank.astype(np.int32), top.scores[query, rank], rows[query].astype(np.int64)
    )
    return found.best()
