"""Shards' rankings merged: the same as one ranking of everything, however it was cut."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.retrieval import TopK
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings, update_best


def top_of(scores: np.ndarray, k: int) -> TopK:
    """Return the k best of each row of scores, where 0 is no match."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    return TopK(np.where(best > 0, order, -1), best)


def cut(scores: np.ndarray, bounds: list[int], k: int) -> list[Rankings]:
    return [Rankings.of(top_of(scores[:, a:b], k), offset=a) for a, b in itertools.pairwise(bounds)]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_merge_of_any_cut_holds_the_best_of_all(data):
    queries, passages, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 60)), data.draw(st.integers(1, 20))
    values = st.sampled_from([0.0, 0.5, 1.0, 1.001, 1.0011, 3.0, 1000.0])
    drawn = data.draw(st.lists(values, min_size=queries * passages, max_size=queries * passages))
    scores = np.array(drawn, np.float32).reshape(queries, passages)
    bounds = sorted({0, passages, *data.draw(st.lists(st.integers(0, passages), max_size=5))})
    parts = data.draw(st.permutations(cut(scores, bounds, k)))
    merged, whole = merge_rankings(parts, queries=queries, k=k), top_of(scores, k)
    width = whole.ids.shape[1]
    assert merged.ids[:, :width].tolist() == whole.ids.tolist() and (merged.ids[:, width:] == -1).all()
    assert merged.scores[:, :width].tolist() == whole.scores.tolist()


def test_ids_up_to_the_last_one_are_kept():
    ids = np.array([0, 1, 2**31, 2**32 - 2])
    found = Rankings(np.array([0, 4]), ids, np.array([3, 2, 2, 1], np.float32))
    assert merge_rankings([found], queries=1, k=4).ids.tolist() == [ids.tolist()]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from([1.0, 2.0, 2.5, 7.0]), max_size=8), min_size=1, max_size=6), st.integers(1, 6))
def test_the_best_scores_so_far_are_remembered(shards, k):
    best = np.zeros((2, k), np.float32)
    for found in shards:
        scores = np.array(sorted(found, reverse=True)[:k], np.float32)
        update_best(best, np.array([0, len(scores), len(scores)]), scores)
    every = sorted((score for found in shards for score in found), reverse=True)[:k]
    assert best.tolist() == [every + [0.0] * (k - len(every)), [0.0] * k]


def test_rankings_survive_a_table():
    rankings = Rankings.of(
        TopK(np.array([[3, 1], [-1, -1], [2, -1]]), np.array([[2, 1], [0, 0], [5, 0]], np.float32)), offset=10
    )
    read = Rankings.from_table(rankings.to_table())
    assert [read.start.tolist(), read.ids.tolist(), read.scores.tolist()] == [[0, 2, 2, 3], [13, 11, 12], [2, 1, 5]]


def test_rankings_of_some_queries_are_a_part_of_all():
    found = Rankings.of(TopK(np.array([[3, 1], [-1, -1], [2, -1]]), np.array([[2, 1], [0, 0], [5, 0]], np.float32)))
    parts = [found.of_queries(0, 2), found.of_queries(2, 3)]
    assert [part.start.tolist() for part in parts] == [[0, 2, 2], [0, 1]]
    assert [part.ids.tolist() for part in parts] == [[3, 1], [2]]
    assert [part.scores.tolist() for part in parts] == [[2, 1], [5]]
