"""Exact search of one shard: the scores that a query's terms add up to in each passage, and the k best of them.

- Sums are whole numbers. What a posting adds is scaled by a power of two that depends on the query and the corpus alone
  and rounded up. Integers add up to the same bits in any order, so shards, threads, windows and skipping do not show in
  the result. The largest possible sum has 31 bits, so a sum is off by at most 2^-31 of it per term. Passages are ranked
  by the sum rounded to float32, which is the score, so that a merge of shards ranks as a single shard does.
- Passages are processed in windows whose sums stay in the first-level cache, and a batch of queries per window, so that
  the part of the index that they share is read into the second-level cache once.
- A dense row is added in steps of one byte, rounded up: vector arithmetic on a quarter of the memory. The sums that
  result are upper bounds, too large by at most the query's `spread`; the candidates for the k best, up to 10 % more
  than k for queries of 32 to 580 words, are summed up exactly at the end.
- MaxScore (Turtle and Flood 1995): terms whose upper bounds together cannot lift a passage to the k-th best score so
  far are not added up. They are looked up for the passages that the other terms leave in the race.
- A candidate's key is its score above its inverted id, so that one comparison of 64 bits decides, ties included. Keys
  are collected unordered, and cut by a histogram whenever there are twice as many as needed: the same cost for any k.
- What is read next is prefetched where it is short or scattered: a window's parts of posting lists and dense rows, and
  exact weights.

A profile of 580-word queries at K 500: 55 % of the time is adding posting lists (a load, a product and an addition at
a scattered place per posting), 26 % adding dense rows, limited by the vector units, and 4 % gathering candidates. The
best SHARE is near 0: MaxScore skips little on long queries, whose upper bounds sum to 16 times the k-th score.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from tlm_ray.retrieval.engine.candidates import collect, cut, gather, sum_exactly
from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.index import ONE, Index
from tlm_ray.retrieval.engine.plan import FRACTION_BITS, LOW, Batch, make_plan
from tlm_ray.retrieval.engine.queries import Queries
from tlm_ray.retrieval.engine.sums import HALF, WINDOW, add_up, look_up
from tlm_ray.retrieval.engine.topk import TopK

BATCH = 128  # queries
BATCH_KEYS = 1 << 26  # room for keys, which may be as many as passages; what is not used takes no memory
# Terms are only looked up while together they are below this share of the k-th score: the larger the share, the more
# passages stay in the race. Against 0.2, 0.06 is a fifth faster for 580 words at K 5,000, 5 % slower for 32 at K 50.
SHARE = 0.08
SCORE_BITS = 31


def search(
    index: Index,
    queries: Sequence[str] | Queries,
    *,
    k: int,
    threads: int = 1,
    allowed: np.ndarray | None = None,
    floor: np.ndarray | None = None,
) -> TopK:
    """Return the k best passages of each query among those that share a term with it.

    queries: texts, analysed like the passages, or what `Queries.read` made of them. allowed: optional bool
    (index.size,), False leaves a passage out. floor: optional float32 (queries,), scores that k passages of other
    shards have reached; a passage below may be left out, because it cannot be among the k best of all. threads changes
    the time only. ValueError if k or threads is below 1, or allowed has another shape.
    """
    _check(index, k, threads, allowed)
    if not isinstance(queries, Queries):
        queries = Queries.read(queries, index.analyzer)
    queries = queries.in_terms(index.terms)
    blocked = np.zeros(index.size, np.bool_) if allowed is None else ~allowed
    # no score reaches lengths * idf_limit, whichever of its terms a shard has
    unit = np.exp2(SCORE_BITS - np.frexp(np.maximum(1, queries.lengths) * index.idf_limit)[1])
    least = np.zeros(len(queries), np.int64) if floor is None else (floor * unit).astype(np.int64)
    top = TopK(np.full((len(queries), k), -1, np.int64), np.zeros((len(queries), k), np.float32))
    most = max(1, min(BATCH, BATCH_KEYS // max(1, index.size)))
    batches = threads * -(-len(queries) // (threads * most))
    by_length = np.argsort(queries.lengths, kind="stable")  # every batch gets short and long ones: they end together

    def work(number: int) -> None:
        mine = by_length[number::batches]
        start, terms, counts = queries.take(mine)
        scale = np.repeat(unit[mine], np.diff(start)) * (2.0**FRACTION_BITS / ONE)
        factors = np.maximum(1, np.rint(counts * index.idf[terms] * scale)).astype(np.uint64)
        batch = Batch(start, terms, factors, least[mine])
        keys, found = _search(batch, index.postings, blocked, min(k, index.size))
        for q, row in enumerate(mine):
            best = np.sort(keys[q, : found[q]])[::-1][:k]
            top.ids[row, : len(best)] = LOW - (best & LOW)
            top.scores[row, : len(best)] = (best >> HALF) / unit[row]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(batches)))
    return top


def _check(index: Index, k: int, threads: int, allowed: np.ndarray | None) -> None:
    for name, value in (("k", k), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} {value!r}: must be a whole number of 1 or more")
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.shape != (index.size,)):
        raise ValueError(
            f"allowed: {allowed.dtype} {allowed.shape}; must be bool ({index.size},), one value for each passage"
        )


class Progress(NamedTuple):
    """How far the search of a batch has come."""

    first: np.ndarray
    """int64 (queries,): the first of a query's terms that is added up; those before it are looked up"""
    need: np.ndarray
    """int64 (queries,): the least sum that may round up to the k-th score so far"""
    keys: np.ndarray
    """uint64 (queries, passages): keys of candidates; only what is used takes memory"""
    found: np.ndarray
    """int64 (queries,): candidates"""
    full: np.ndarray
    """int64 (queries,): candidates that make a cut due"""


@compiled
def _search(batch, postings, blocked, k):
    """Search the Postings of a shard for a Batch; blocked, bool (passages,), leaves passages out.

    Return the keys of at least each query's k best passages, uint64 (queries, passages) in no order, and how many there
    are, int64 (queries,).
    """
    queries, size = len(batch.least), len(blocked)
    plan = make_plan(batch, postings)
    need = np.maximum(1, batch.least - (batch.least >> 23) - 1)
    keys, found = np.empty((queries, size), np.uint64), np.zeros(queries, np.int64)
    progress = Progress(batch.start[:-1].copy(), need, keys, found, np.full(queries, k + 1))
    room, racing = np.zeros(WINDOW, np.uint32), np.empty(WINDOW, np.uint32)
    for left in range(0, size, WINDOW):
        sums = room[: min(WINDOW, size - left)]
        for q in range(queries):
            stop = plan.start[q + 1]
            if plan.start[q] < stop and plan.bounds[stop - 1] >= need[q]:
                count = _sum_up(sums, left, racing, q, progress, plan, postings)
                found[q] = collect(sums, racing[:count], need[q], blocked, left, keys[q], found[q])
                sums[:] = 0
                if found[q] >= progress.full[q]:
                    need[q], found[q] = cut(keys[q, : found[q]], k, need[q], plan.spread[q])
                    progress.full[q] = 2 * found[q]
    for q in range(queries):
        if found[q] > k:
            _, found[q] = cut(keys[q, : found[q]], k, need[q], plan.spread[q])
        mine = slice(plan.start[q], plan.start[q + 1])
        sum_exactly(keys[q, : found[q]], plan.rows[mine], plan.factors[mine], postings.exact)
    return keys, found


@compiled
def _sum_up(sums, left, racing, q, progress, plan, postings):
    """Sum up query q in the window whose first passage is `left`: sums, uint32 (passages,), are zeros at first.

    Write the places of the passages that may reach the query's `need` to racing, uint32; return how many there are.
    """
    start, stop, need = plan.start[q], plan.start[q + 1], progress.need[q]
    first = progress.first[q]
    while first < stop - 1 and plan.bounds[first] < need * SHARE:
        first += 1
    progress.first[q] = first
    add_up(sums, left, first, stop, plan, postings)
    slack = plan.bounds[first - 1] if first > start else 0
    count = gather(sums, need - slack, racing)
    return look_up(sums, left, racing[:count], (start, first), need, plan, postings)
