"""The best passages of each query, and of all queries together."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopK:
    """Ranked passages of each query: score descending, then passage id ascending.

    ids: int64 (queries, k), -1 where fewer than k passages match. scores: float32 (queries, k), 0 there.
    """

    ids: np.ndarray
    scores: np.ndarray


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
