"""The best passages of each query, and the exact merge of several shards' best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopK:
    """Ranked passages of each query: score descending, then passage id ascending.

    ids: int64 (queries, k), -1 where fewer than k passages match. scores: float32 (queries, k), 0 there.
    """

    ids: np.ndarray
    scores: np.ndarray


def merge(parts: Sequence[TopK], *, offsets: Sequence[int], k: int) -> TopK:
    """Merge the top-k of shards into the top-k of the whole.

    offsets[i] is the id in the whole of passage 0 of shard i. Exact, because the order of two passages does not depend
    on the shard they are in; so the result does not depend on how the corpus was cut.
    """
    if k < 1:
        raise ValueError(f"k {k!r}: must be a whole number of 1 or more")
    if len(parts) != len(offsets) or not parts:
        raise ValueError(
            f"parts: {len(parts)} and offsets: {len(offsets)}; give one offset for each of one or more parts"
        )
    ids = [np.where(part.ids >= 0, part.ids + offset, -1) for part, offset in zip(parts, offsets, strict=True)]
    joined, scores = (
        np.concatenate(ids, axis=1),
        np.concatenate([part.scores for part in parts], axis=1),
    )
    order = np.lexsort((joined, -scores), axis=1)[:, :k]  # a match scores above 0, so -1 ids come last
    top = TopK(np.take_along_axis(joined, order, axis=1), np.take_along_axis(scores, order, axis=1))
    short = k - top.ids.shape[1]
    if short > 0:
        top = TopK(
            np.pad(top.ids, ((0, 0), (0, short)), constant_values=-1),
            np.pad(top.scores, ((0, 0), (0, short))),
        )
    return top


@dataclass(frozen=True)
class Best:
    """Each retrieved passage once, with the best rank that any query gave it; sorted by rank, then passage id.

    passages, queries: int64; ranks: int32; scores: float32. `queries` holds the row that chose it: at equal rank the
    higher score, then the lower row.
    """

    passages: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    queries: np.ndarray


def best_ranks(top: TopK, rows: np.ndarray) -> Best:
    """Unite the queries' neighbours, keeping the best rank of each passage (released code: the minimum rank).

    rows: (queries,) the task row that each query stands for. The cut at any smaller k is `ranks < k` (a prefix).
    """
    query, rank = np.nonzero(top.ids >= 0)
    passage, score = top.ids[query, rank], top.scores[query, rank]
    order = np.lexsort((rows[query], -score, rank, passage))
    first = order[np.unique(passage[order], return_index=True)[1]]
    first = first[np.lexsort((passage[first], rank[first]))]
    return Best(
        passage[first],
        rank[first].astype(np.int32),
        score[first],
        rows[query[first]].astype(np.int64),
    )
