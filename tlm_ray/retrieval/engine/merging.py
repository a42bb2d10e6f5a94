"""The merge of shards: the k best passages of all, moving little more than those.

For each query a shard reports a few probe scores: those at ranks 1, 2, 3, 4, 6, 8, 12, ... of its ranking, as floats of
16 bits. The probes of all shards give a threshold, a score that k passages have reached, and only passages at or above
it are sent: about a sixth more than the result, whatever the number of shards (the thresholds of Cao and Wang 2004, for
rankings that share no passage).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.topk import TopK

QUERIES_AT_ONCE = 1024  # whose probe scores are in memory


@dataclass(frozen=True)
class Rankings:
    """The ranked passages of each query, one ranking behind the other."""

    start: np.ndarray
    """int64 (queries + 1,): query q has the passages start[q] to start[q + 1], best first"""
    ids: np.ndarray
    """int64: passage ids"""
    scores: np.ndarray
    """float32"""

    @classmethod
    def of(cls, top: TopK, *, offset: int = 0) -> "Rankings":
        """Return a shard's top-k without the places that no passage took; offset is the id of its passage 0."""
        found = top.ids >= 0
        start = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        return cls(start, top.ids[found] + offset, top.scores[found])

    def above(self, threshold: np.ndarray) -> "Rankings":
        """Return the passages that reach their query's threshold, float32 (queries,)."""
        kept = self.scores >= np.repeat(threshold, np.diff(self.start))
        return Rankings(np.concatenate([[0], np.cumsum(kept)])[self.start], self.ids[kept], self.scores[kept])

    def to_table(self) -> pa.Table:
        """Return a table with one row per query: its list of ids and its list of scores."""
        columns = {"id": self.ids, "score": self.scores}
        return pa.table({name: pa.LargeListArray.from_arrays(self.start, values) for name, values in columns.items()})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Rankings":
        """Read what `to_table` made."""
        lengths = pc.list_value_length(table["id"]).to_numpy()
        ids, scores = (pc.list_flatten(table[name]).to_numpy() for name in ("id", "score"))
        return cls(np.concatenate([[0], np.cumsum(lengths)]), ids, scores)


def probe_ranks(k: int) -> np.ndarray:
    """Return the ranks of the probes, from 1 to k: two per doubling, so that a gap is at most half of its rank."""
    powers = 2 ** np.arange(k.bit_length())
    return np.array([rank for rank in np.unique([*powers, *(3 * powers // 2), k]) if rank <= k])


def probe_scores(rankings: Rankings, k: int) -> np.ndarray:
    """Return the scores at `probe_ranks(k)`, rounded down to a float32's upper half: uint16 (queries, probes), 0 where
    a ranking is shorter."""
    ranks, lengths = probe_ranks(k), np.diff(rankings.start)
    reached = lengths[:, None] >= ranks
    found = np.zeros(reached.shape, np.uint16)
    found[reached] = rankings.scores[(rankings.start[:-1, None] + ranks - 1)[reached]].view(np.uint32) >> 16
    return found


def thresholds(probes: Sequence[np.ndarray], k: int) -> np.ndarray:
    """Return a score that at least k passages of all shards reach, float32 (queries,); 0 where there may be fewer.

    probes: the `probe_scores` of each shard.
    """
    more = np.diff(probe_ranks(k), prepend=0)  # passages that a probe adds to those of the probe before
    found = np.zeros(len(probes[0]), np.uint32)
    for start in range(0, len(found), QUERIES_AT_ONCE):
        rows = slice(start, start + QUERIES_AT_ONCE)
        every = np.concatenate([one[rows] for one in probes], axis=1).astype(np.int32)
        order = np.argsort(-every, axis=1, kind="stable")
        values = np.take_along_axis(every, order, axis=1)
        counts = np.where(values > 0, np.tile(more, len(probes))[order], 0)
        reached = np.cumsum(counts, axis=1) >= k
        first = np.take_along_axis(values, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
        found[rows] = np.where(reached.any(axis=1), first, 0) << 16
    return found.view(np.float32)


def merge_rankings(parts: Sequence[Rankings], k: int) -> TopK:
    """Merge the rankings of shards that share no passage into the k best of all: score descending, then id."""
    queries = len(parts[0].start) - 1
    top = TopK(np.full((queries, k), -1, np.int64), np.zeros((queries, k), np.float32))
    keys = [
        ~part.scores.view(np.uint32).astype(np.uint64) << np.uint64(32) | part.ids.astype(np.uint64) for part in parts
    ]
    for q in range(queries):
        own = [key[part.start[q] : part.start[q + 1]] for key, part in zip(keys, parts, strict=True)]
        best = np.sort(np.concatenate(own))[:k]
        top.ids[q, : len(best)] = best & np.uint64(0xFFFFFFFF)
        top.scores[q, : len(best)] = (~(best >> np.uint64(32)).astype(np.uint32)).view(np.float32)
    return top


def merge(parts: Sequence[TopK], *, offsets: Sequence[int], k: int) -> TopK:
    """Merge the top-k of shards into the top-k of the whole.

    offsets[i] is the id in the whole of passage 0 of shard i. Exact, because the order of two passages does not depend
    on the shard they are in; so the result does not depend on how the corpus was cut. ValueError without a part, or an
    offset for each, and for a k below 1.
    """
    if k < 1:
        raise ValueError(f"k {k!r}: must be a whole number of 1 or more")
    if len(parts) != len(offsets) or not parts:
        raise ValueError(
            f"parts: {len(parts)} and offsets: {len(offsets)}; give one offset for each of one or more parts"
        )
    return merge_rankings([Rankings.of(part, offset=offset) for part, offset in zip(parts, offsets, strict=True)], k)


@compiled
def update_best(best, start, scores):
    """Merge each query's new scores into its best so far, float32 (queries, k), both in descending order.

    start: int64 (queries + 1,); query q has the new scores start[q] to start[q + 1], float32.
    """
    k = best.shape[1]
    merged = np.empty(k, np.float32)
    for q in range(best.shape[0]):
        i, j, stop = 0, start[q], start[q + 1]
        if j == stop or scores[j] <= best[q, k - 1]:
            continue
        for rank in range(k):
            if j < stop and scores[j] > best[q, i]:
                merged[rank] = scores[j]
                j += 1
            else:
                merged[rank] = best[q, i]
                i += 1
        best[q] = merged
