"""Compute one query's sums in a window of passages: add terms for all passages, or look them up for candidates.

In every kernel, sums, uint32 (up to WINDOW,), belong to the window's passages, the first of which is `left`. racing,
uint32, holds the indices in the window of passages that can still reach the k-th score.
"""

import numpy as np

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.machine import prefetch
from tlm_ray.retrieval.engine.plan import LOW, points, step

WINDOW = 4096  # passages; 4 bytes each
AHEAD = 4  # number of terms whose first cache lines in a window are prefetched
LINE = 64  # bytes per prefetch
LINES = 4
HALF = np.uint64(32)


@compiled
def add_up(sums, left, first, stop, plan, postings):
    """Add the Plan's terms [first, stop) to the sums: the posting lists, then the dense rows."""
    lists, coarse = postings.lists, postings.coarse
    rows, at, factors = plan.rows, plan.at, plan.factors
    for i in range(first, stop):
        if rows[i] < 0:
            if i + AHEAD < stop:
                for line in range(LINES):
                    prefetch(lists, at[i + AHEAD] + np.uint64(line * LINE // 8))
            at[i] = _add_list(sums, left, lists, at[i], factors[i])
    for i in range(first, stop):
        if rows[i] >= 0:
            if i + 1 < stop and rows[i + 1] >= 0:
                for line in range(LINES):
                    prefetch(coarse, rows[i + 1] * coarse.shape[1] + left + line * LINE)
            _add_row(sums, coarse[rows[i], left : left + len(sums)], step(factors[i]))


@compiled
def look_up(sums, left, racing, terms, need, plan, postings):
    """Add the Plan's terms to the sums of the racing passages, largest upper bound first.

    terms: int64 (2,), first and end of the terms. Passages that can no longer reach `need`, int64, are dropped. Return
    the number of passages kept.
    """
    rows, count = plan.rows, len(racing)
    for i in range(terms[1] - 1, terms[0] - 1, -1):
        reach = need - (plan.bounds[i - 1] if i > terms[0] else 0)
        if rows[i] >= 0:
            weights = postings.coarse[rows[i], left : left + len(sums)]
            count = _look_up_row(sums, racing[:count], weights, step(plan.factors[i]), reach)
        else:
            rest = postings.lists[np.int64(plan.at[i]) : np.int64(plan.end[i])]
            count, read = _look_up_list(sums, left, racing[:count], rest, plan.factors[i], reach)
            plan.at[i] += read
    return count


@compiled
def _add_list(sums, left, lists, at, factor):
    """Add the postings of a list, `lists[at:]`, up to the window's end; return the index of the next one, uint64."""
    limit, base = np.uint64(left + len(sums)) << HALF, np.uint64(left)
    posting = lists[at]
    while posting < limit:  # as the SENTINEL is not
        sums[(posting >> HALF) - base] += points(posting & LOW, factor)
        at += np.uint64(1)
        posting = lists[at]
    return at


@compiled
def _add_row(sums, weights, step):
    """Add a dense row's part of the window, uint8, times the step, uint32."""
    for j in range(len(weights)):
        sums[j] += np.uint32(weights[j]) * step


@compiled
def _look_up_row(sums, racing, weights, step, reach):
    """Add a dense row to the racing passages, and move those that reach `reach`, int64, to the front.

    Return their number.
    """
    kept = 0
    for c in range(len(racing)):
        j = racing[c]
        sums[j] += np.uint32(weights[j]) * step
        racing[kept] = j
        kept += sums[j] >= reach
    return kept


@compiled
def _look_up_list(sums, left, racing, rest, factor, reach):
    """Do as `_look_up_row` for the rest of a posting list, by galloping search.

    rest: uint64, without the SENTINEL. Return the numbers of kept passages and of passed postings, uint64.
    """
    kept, at, end = 0, np.uint64(0), np.uint64(len(rest))
    for c in range(len(racing)):
        j = racing[c]
        target = np.uint64(left + j) << HALF
        stride, ahead = np.uint64(1), at
        while ahead < end and rest[ahead] < target:
            at = ahead + np.uint64(1)
            ahead += stride
            stride += stride
        high = min(ahead, end)
        while at < high:
            middle = (at + high) >> np.uint64(1)
            if rest[middle] < target:
                at = middle + np.uint64(1)
            else:
                high = middle
        if at < end and rest[at] >> HALF == np.uint64(left + j):
            sums[j] += points(rest[at] & LOW, factor)
        racing[kept] = j
        kept += sums[j] >= reach
    return kept, at
