"""Plan the search of a batch of queries: order of terms, integer factors, upper bounds, positions in posting lists."""

from typing import NamedTuple

import numpy as np

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.index import STEP_BITS

FRACTION_BITS = 32  # of the product of weight and factor, whose integer part has up to 31 bits
LOW = np.uint64(0xFFFFFFFF)


class Batch(NamedTuple):
    """A batch of queries, with the term numbers of an index."""

    start: np.ndarray
    """int64 (queries + 1,): query q has the terms start[q] to start[q + 1]"""
    terms: np.ndarray
    """int32 (terms,): numbers of the index"""
    factors: np.ndarray
    """uint64 (terms,): contribution of a weight of 1 unit to a sum, in units of 2^-FRACTION_BITS"""
    least: np.ndarray
    """int64 (queries,): sum that k passages of other shards have reached"""


class Plan(NamedTuple):
    """A batch's terms, per query in ascending order of their upper bounds, with their positions in the lists."""

    start: np.ndarray
    """int64 (queries + 1,): query q has the terms start[q] to start[q + 1]"""
    factors: np.ndarray
    """uint64 (terms,): as in Batch"""
    rows: np.ndarray
    """int32 (terms,): the dense row, -1 for a posting list"""
    at: np.ndarray
    """uint64 (terms,): the next posting of the list; advances from window to window"""
    end: np.ndarray
    """uint64 (terms,): the list's SENTINEL"""
    bounds: np.ndarray
    """int64 (terms,): upper bound of the sum of a term and those before it in its query"""
    spread: np.ndarray
    """int64 (queries,): the most by which a sum of the query may be too large"""


@compiled
def make_plan(batch, postings):
    """Return the Plan of a Batch in the Postings of an index."""
    terms, factors, bounds = batch.terms.copy(), batch.factors.copy(), np.empty(len(batch.terms), np.int64)
    spread = np.zeros(len(batch.start) - 1, np.int64)
    for q in range(len(spread)):
        mine = slice(batch.start[q], batch.start[q + 1])
        limits = bounds[mine]
        for i in range(batch.start[q], batch.start[q + 1]):
            largest = postings.largest[terms[i]]
            if postings.row[terms[i]] < 0:
                bounds[i] = points(largest, factors[i])
            else:
                bounds[i] = np.int64(steps(largest)) * np.int64(step(factors[i]))
                spread[q] += np.int64(step(factors[i])) + 256
        order = np.argsort(limits)
        terms[mine], factors[mine] = terms[mine][order], factors[mine][order]
        bounds[mine] = np.cumsum(limits[order])
    at, end = postings.start[terms].astype(np.uint64), (postings.start[terms + 1] - 1).astype(np.uint64)
    return Plan(batch.start, factors, postings.row[terms], at, end, bounds, spread)


@compiled
def points(weight, factor):
    """Return a weight's contribution to a sum: uint32, at least 1, so that every matching passage has a score.

    weight: uint32. factor: uint64.
    """
    return np.uint32((np.uint64(weight) * factor + LOW) >> np.uint64(FRACTION_BITS))


@compiled
def step(factor):
    """Return the contribution of one step of a dense row, uint32, rounded up.

    `steps(weight)` of them are never less than `points(weight, factor)`.
    """
    return np.uint32(factor >> np.uint64(FRACTION_BITS - STEP_BITS)) + np.uint32(1)


@compiled
def steps(weight):
    """Return the number of steps, uint32, of a weight, uint32, in a dense row."""
    return np.uint32(weight >> np.uint32(STEP_BITS)) + np.uint32(1)
