"""Streams of rows and what mixes them: which batch is whose, and that every row gets its turn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.training.objectives import Loss
from tlm_ray.training.sampler.mixers import Cycle
from tlm_ray.training.sampler.streams import POOL_BATCHES, Stream, check_streams
from tlm_ray.training.tokens.blocks import Blocks


def make_stream(lengths, *, batch_rows=8, name="task", number=1, seed=0):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    blocks = Blocks(np.zeros(int(offsets[-1]), np.int32), offsets)
    return Stream(name=name, number=number, blocks=blocks, loss=Loss(()), batch_rows=batch_rows, seed=seed)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_every_row_comes_once_a_pass(number):
    rows = 3 * POOL_BATCHES * 4  # a pass is three pools of batches of 4
    stream = make_stream(np.random.default_rng(0).integers(3, 50, rows), batch_rows=4, number=number)
    passes = [np.concatenate([stream.rows(turn * rows // 4 + i) for i in range(rows // 4)]) for turn in range(3)]
    for seen in passes:
        np.testing.assert_array_equal(np.sort(seen), np.arange(rows))
    assert not np.array_equal(passes[0], passes[1]), "each pass is shuffled anew"


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(rows=st.integers(1, 400), batch_rows=st.integers(1, 24), pools=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_no_row_is_ever_more_than_one_pass_ahead_of_another(rows, batch_rows, pools, seed):
    stream = make_stream(np.full(rows, 5), batch_rows=batch_rows, seed=seed)
    seen = np.concatenate([stream.rows(number) for number in range(pools * POOL_BATCHES)])
    counts = np.bincount(seen, minlength=rows)
    assert counts.sum() == pools * POOL_BATCHES * batch_rows
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("rows", "batch_rows"), [(515, 256), (64, 32), (1688, 256)])
def test_a_batch_is_of_distinct_rows_where_a_pass_is_less_than_a_pool(rows, batch_rows):
    stream = make_stream(np.random.default_rng(0).integers(10, 128, rows), batch_rows=batch_rows)
    distinct = [len(set(stream.rows(number))) for number in range(3 * POOL_BATCHES)]
    assert np.mean(distinct) > 0.95 * batch_rows  # only a batch across two passes may meet a row again


def test_streams_of_other_numbers_or_seeds_are_shuffled_apart():
    base, *others = (make_stream(np.full(500, 5), **keys) for keys in ({}, {"number": 2}, {"seed": 1}))
    assert all(not np.array_equal(base.rows(0), other.rows(0)) for other in others)


def test_tasks_take_turns_behind_the_general_batches():
    places = [Cycle(2, tasks=2).place(step) for step in range(12)]
    assert places == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (2, 0), (0, 4), (0, 5), (1, 1), (0, 6), (0, 7), (2, 1)]
    assert [Cycle(0, tasks=3).place(step) for step in range(5)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ([{"name": "a", "number": 1}, {"name": "a", "number": 2}], r"streams: names \['a', 'a'\]: must be unique"),
        ([{"name": "a", "number": 1}, {"name": "b", "number": 1}], r"streams: numbers \[1, 1\]: must be unique"),
        ([{"name": "a", "lengths": []}], "stream 'a': it has no rows; give it at least one"),
    ],
)
def test_streams_that_cannot_be_told_apart_or_are_empty_are_refused(streams, message):
    with pytest.raises(ValueError, match=message):
        check_streams([make_stream(**({"lengths": [3]} | stream)) for stream in streams])
