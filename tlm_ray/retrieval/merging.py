"""The best of all shards without moving what is not among them.

Every shard tells a few rungs of each query's list: the scores at ranks 1, 2, 3, 4, 6, 8, 12, ... to 8 bits. From the
rungs of all follows a score that k passages have reached, and only passages at or above it are sent: about a sixth more
than the result, whatever the number of shards (the thresholds of Cao and Wang 2004, for lists that share no passage).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from tlm_ray.retrieval.topk import TopK

QUERIES_AT_ONCE = 1024  # whose rungs are in memory


@dataclass(frozen=True)
class Lists:
    """Each query's passages, best first, one query behind the other.

    start: int64 (queries + 1,). ids: int64. scores: float32.
    """

    start: np.ndarray
    ids: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, top: TopK, *, offset: int = 0) -> "Lists":
        """Return a shard's top-k without the places that no passage took; offset is the id of its passage 0."""
        found = top.ids >= 0
        start = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        return cls(start, top.ids[found] + offset, top.scores[found])

    def above(self, floors: np.ndarray) -> "Lists":
        """Return the passages that reach their query's floor, float32 (queries,)."""
        kept = self.scores >= np.repeat(floors, np.diff(self.start))
        return Lists(np.concatenate([[0], np.cumsum(kept)])[self.start], self.ids[kept], self.scores[kept])

    def to_table(self) -> pa.Table:
        """Return a table of a list of ids and a list of scores a query."""
        columns = {"id": self.ids, "score": self.scores}
        return pa.table({name: pa.LargeListArray.from_arrays(self.start, values) for name, values in columns.items()})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Lists":
        """Read what `to_table` made."""
        lengths = pc.list_value_length(table["id"]).to_numpy()
        ids, scores = (pc.list_flatten(table[name]).to_numpy() for name in ("id", "score"))
        return cls(np.concatenate([[0], np.cumsum(lengths)]), ids, scores)


def rung_ranks(k: int) -> np.ndarray:
    """Return the ranks that are told, from 1 to k: two in each doubling, so that a gap is at most half of its rank."""
    powers = 2 ** np.arange(k.bit_length())
    return np.array([rank for rank in np.unique([*powers, *(3 * powers // 2), k]) if rank <= k])


def rungs(lists: Lists, k: int) -> np.ndarray:
    """Return the scores at the rungs' ranks, rounded down to a float32's upper half: uint16 (queries, rungs), 0 where a
    list is shorter."""
    ranks, lengths = rung_ranks(k), np.diff(lists.start)
    told = lengths[:, None] >= ranks
    found = np.zeros(told.shape, np.uint16)
    found[told] = lists.scores[(lists.start[:-1, None] + ranks - 1)[told]].view(np.uint32) >> 16
    return found


def floors(told: Sequence[np.ndarray], k: int) -> np.ndarray:
    """Return a score that at least k passages of all shards reach, float32 (queries,); 0 where there may be fewer.

    told: the rungs of each shard.
    """
    more = np.diff(rung_ranks(k), prepend=0)  # passages that a rung adds to those of the rung before
    found = np.zeros(len(told[0]), np.uint32)
    for start in range(0, len(found), QUERIES_AT_ONCE):
        rows = slice(start, start + QUERIES_AT_ONCE)
        every = np.concatenate([one[rows] for one in told], axis=1).astype(np.int32)
        order = np.argsort(-every, axis=1, kind="stable")
        values = np.take_along_axis(every, order, axis=1)
        counts = np.where(values > 0, np.tile(more, len(told))[order], 0)
        reached = np.cumsum(counts, axis=1) >= k
        first = np.take_along_axis(values, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
        found[rows] = np.where(reached.any(axis=1), first, 0) << 16
    return found.view(np.float32)


def unite(parts: Sequence[Lists], k: int) -> TopK:
    """Merge the lists of shards that share no passage into the k best of all: score descending, then id."""
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
    return unite([Lists.of(part, offset=offset) for part, offset in zip(parts, offsets, strict=True)], k)


@njit(nogil=True, cache=True)
def remember(best, start, scores):
    """Merge each query's new scores into its best so far, float32 (queries, k), both in descending order."""
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
