"""Merge the rankings of shards into the k best passages of all, one shard after another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.topk import TopK

LOW = np.uint64(2**32 - 1)  # the half of a key that holds the id


@dataclass(frozen=True)
class Rankings:
    """The ranked passages of each query, concatenated."""

    start: np.ndarray
    """int64 (queries + 1,): query q has passages[start[q]:start[q + 1]], best first"""
    ids: np.ndarray
    """int64: passage ids"""
    scores: np.ndarray
    """float32"""

    @classmethod
    def of(cls, top: TopK, *, offset: int = 0) -> "Rankings":
        """Return a shard's top-k without empty places; offset is the id of its passage 0."""
        found = top.ids >= 0
        start = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        return cls(start, top.ids[found] + offset, top.scores[found])

    def above(self, threshold: np.ndarray) -> "Rankings":
        """Keep the passages that reach their query's threshold, float32 (queries,)."""
        kept = self.scores >= np.repeat(threshold, np.diff(self.start))
        return Rankings(np.concatenate([[0], np.cumsum(kept)])[self.start], self.ids[kept], self.scores[kept])

    @property
    def keys(self) -> np.ndarray:
        """Pack score and id into one uint64 each; larger is better: by score, then by the lower id."""
        return self.scores.view(np.uint32).astype(np.uint64) << np.uint64(32) | ~self.ids.astype(np.uint64) & LOW

    def of_queries(self, first: int, last: int) -> "Rankings":
        """Return the rankings of the queries [first, last)."""
        start, stop = self.start[first], self.start[last]
        return Rankings(self.start[first : last + 1] - start, self.ids[start:stop], self.scores[start:stop])

    def to_table(self) -> pa.Table:
        """Return a table with one row per query: lists of ids and scores."""
        columns = {"id": self.ids, "score": self.scores}
        return pa.table({name: pa.LargeListArray.from_arrays(self.start, values) for name, values in columns.items()})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Rankings":
        """Read a table by `to_table`."""
        lengths = pc.list_value_length(table["id"]).to_numpy()
        ids, scores = (pc.list_flatten(table[name]).to_numpy() for name in ("id", "score"))
        return cls(np.concatenate([[0], np.cumsum(lengths)]), ids, scores)


def merge_rankings(parts: Iterable[Rankings], *, queries: int, k: int) -> TopK:
    """Merge the rankings of disjoint shards into the k best of all: by score descending, then id.

    ValueError if the numbers of queries differ.
    """
    best = np.zeros((queries, k), np.uint64)
    for part in parts:
        if len(part.start) != queries + 1:
            raise ValueError(f"a shard has rankings of {len(part.start) - 1} queries instead of {queries}")
        update_best(best, part.start, part.keys)
    found = best > 0
    ids = np.where(found, (~best & LOW).astype(np.int64), -1)
    return TopK(ids, (best >> np.uint64(32)).astype(np.uint32).view(np.float32))


def merge(parts: Sequence[TopK], *, offsets: Sequence[int], k: int) -> TopK:
    """Merge the top-k of shards into the top-k of the whole.

    offsets[i] is the global id of passage 0 of shard i. The merge is exact, because the order of two passages does not
    depend on their shards. ValueError for no parts, a wrong number of offsets, or a k below 1.
    """
    if k < 1:
        raise ValueError(f"k {k!r}: must be a whole number of 1 or more")
    if len(parts) != len(offsets) or not parts:
        raise ValueError(
            f"parts: {len(parts)} and offsets: {len(offsets)}; give one or more parts, and one offset per part"
        )
    rankings = (Rankings.of(part, offset=offset) for part, offset in zip(parts, offsets, strict=True))
    return merge_rankings(rankings, queries=len(parts[0].ids), k=k)


@compiled
def update_best(best, start, found):
    """Merge new results of each query into its best so far, (queries, k), both in descending order.

    start: int64 (queries + 1,); query q has found[start[q]:start[q + 1]]. Both are float32 scores, or uint64 keys.
    """
    k = best.shape[1]
    merged = np.empty(k, best.dtype)
    for q in range(best.shape[0]):
        i, j, stop = 0, start[q], start[q + 1]
        if j == stop or found[j] <= best[q, k - 1]:
            continue
        for rank in range(k):
            if j < stop and found[j] > best[q, i]:
                merged[rank] = found[j]
                j += 1
            else:
                merged[rank] = best[q, i]
                i += 1
        best[q] = merged
