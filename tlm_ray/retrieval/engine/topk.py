"""The best passages of each query, and of all queries together."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopK:
    """Ranked passages of each query: score descending, then passage id ascending."""

    ids: np.ndarray
    """int64 (queries, k), -1 where fewer than k passages match"""
    scores: np.ndarray
    """float32 (queries, k), 0 where fewer than k passages match"""


@dataclass(frozen=True)
class Selection:
    """Each retrieved passage once, with the best rank that any query gave it; sorted by rank, then passage id."""

    passages: np.ndarray
    """int64: passage ids"""
    ranks: np.ndarray
    """int32: 0 for the best"""
    scores: np.ndarray
    """float32"""
    queries: np.ndarray
    """int64: the task row that chose it, at equal rank the one of the higher score, then the lower row; -1 for none"""


def best_ranks(top: TopK, rows: np.ndarray) -> Selection:
    """Unite the queries' neighbours, keeping the best rank of each passage (released code: the minimum rank).

    rows: int64 (queries,), the task row that each query stands for. The cut at any smaller k is `ranks < k`: a prefix.
    """
    query, rank = np.nonzero(top.ids >= 0)
    passage, score = top.ids[query, rank], top.scores[query, rank]
    order = np.lexsort((rows[query], -score, rank, passage))
    first = order[np.unique(passage[order], return_index=True)[1]]
    first = first[np.lexsort((passage[first], rank[first]))]
    return Selection(
        passage[first],
        rank[first].astype(np.int32),
        score[first],
        rows[query[first]].astype(np.int64),
    )
