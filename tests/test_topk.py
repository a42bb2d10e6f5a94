"""The best rank of each passage, against a loop."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.retrieval import TopK, best_ranks


@st.composite
def rankings(draw):
    """A TopK of valid shape, with many equal scores, and a task row for each query."""
    queries, k = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    ids, scores = np.full((queries, k), -1), np.zeros((queries, k), np.float32)
    for query in range(queries):
        found = draw(st.lists(st.integers(0, 9), unique=True, max_size=k))
        ids[query, : len(found)] = found
        ranked = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(found), max_size=len(found)))
        scores[query, : len(found)] = sorted(ranked, reverse=True)
    rows = draw(st.lists(st.integers(0, 50), unique=True, min_size=queries, max_size=queries))
    return TopK(ids, scores), np.array(rows)


def best_by_a_loop(top, rows):
    """Passage -> its least (rank, -score, row)."""
    best = {}
    for row, ids, scores in zip(rows.tolist(), top.ids.tolist(), top.scores.tolist(), strict=True):
        for rank, (passage, score) in enumerate(zip(ids, scores, strict=True)):
            if passage >= 0:
                best[passage] = min(best.get(passage, (math.inf,)), (rank, -score, row))
    return sorted((rank, passage, -score, row) for passage, (rank, score, row) in best.items())


@settings(max_examples=300, deadline=None)
@given(rankings())
def test_best_ranks_are_those_of_a_loop(drawn):
    best = best_ranks(*drawn)
    columns = (best.ranks, best.passages, best.scores, best.queries)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == best_by_a_loop(*drawn)
    assert [column.dtype for column in columns] == [np.int32, np.int64, np.float32, np.int64]


@settings(max_examples=200, deadline=None)
@given(rankings(), st.integers(1, 6))
def test_best_ranks_at_a_smaller_k_are_a_prefix(drawn, k):
    top, rows = drawn
    whole, part = best_ranks(top, rows), best_ranks(TopK(top.ids[:, :k], top.scores[:, :k]), rows)
    count = int((whole.ranks < k).sum())
    for name in ("passages", "ranks", "scores", "queries"):
        assert getattr(part, name).tolist() == getattr(whole, name)[:count].tolist()
