"""Where keys are cut for tasks to sort, from a few keys of each shard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.retrieval import union_job
from tlm_ray.retrieval.draw_job import cut_points, probes
from tlm_ray.retrieval.engine.noise import uniform


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from([-3.5, 0.0, 1.0, 1.5, 9.0]), max_size=90), min_size=1, max_size=5), st.data())
def test_as_many_as_are_drawn_reach_the_last_cut(shards, data):
    every = np.concatenate([np.array(shard, float) for shard in shards])
    drawn = data.draw(st.integers(0, len(every)))
    share = drawn * data.draw(st.sampled_from([0, 0.1, 1]))
    cuts = cut_points([probes(np.sort(np.array(shard, float))[::-1], share=share) for shard in shards], drawn)
    assert len(cuts) and (np.diff(cuts) < 0).all()
    assert (every >= cuts[-1]).sum() >= drawn


def test_a_task_has_little_more_than_its_share(monkeypatch):
    monkeypatch.setattr(union_job, "PLACES", 10_000)
    keys = uniform(np.arange(1_000_000), seed=0)
    cuts = cut_points([probes(np.sort(some)[::-1], share=1_900) for some in np.split(keys, 50)], 95_000)
    dealt = np.histogram(keys, [*cuts[::-1], 1])[0]
    assert len(cuts) == 10 and dealt.sum() >= 95_000
    assert dealt.max() <= 1.25 * 10_000


def test_numbers_of_passages_are_uniform_and_their_own():
    numbers = uniform(np.arange(100_000), seed=0)
    assert 0 < numbers.min() < numbers.max() < 1
    np.testing.assert_allclose(np.histogram(numbers, 20, (0, 1))[0], 5_000, atol=400)
    assert (uniform(np.arange(500, 600), seed=0) == numbers[500:600]).all()
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("times", [48, 200])
def test_a_task_has_its_share_of_many_more_drawn_too(monkeypatch, times):
    monkeypatch.setattr(union_job, "PLACES", 1_000)
    keys, drawn = uniform(np.arange(500_000), seed=0), times * 1_000
    told = [probes(np.sort(some)[::-1], share=drawn / 25, many=5 * times) for some in np.split(keys, 25)]
    dealt = np.histogram(keys, [*cut_points(told, drawn)[::-1], 1])[0]
    assert dealt.max() <= 2 * 1_000
