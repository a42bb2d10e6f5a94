"""Search one shard exactly: sum the weights of a query's terms per passage, and return the k best passages.

- Sums are integers. A posting's contribution is scaled by a power of two and rounded up; the power depends only on the
  query and the corpus. Integer sums do not depend on order, so shards, threads, windows and skipping never change the
  result. The largest possible sum has 31 bits, so the error is at most 2^-31 of it per term. Passages are ranked by
  the score, which is the sum rounded to float32, so merged shards rank like a single one.
- Passages are processed in windows whose sums fit in the L1 cache. Each window serves a batch of queries, which read
  their shared part of the index into the L2 cache once.
- A dense row holds weights rounded up to one byte: vector arithmetic on a quarter of the memory. The resulting sums
  are upper bounds, too large by at most the query's `spread`. At the end the candidates are summed exactly. These are
  up to 10 % more than k for queries of 32 to 580 words.
- MaxScore (Turtle and Flood 1995): some terms' upper bounds together cannot reach the k-th best score so far. These
  terms are not added to all passages, but looked up for passages that can still reach that score.
- A candidate's key is its score and its inverted id, so a single 64-bit comparison decides, ties included. Keys are
  collected unordered. A histogram prunes them at twice the needed number, at the same cost for any k.
- Short or scattered reads are prefetched: a window's parts of posting lists and dense rows, and exact weights.

A profile of 580-word queries at K 500: 55 % of the time is adding posting lists, 26 % adding dense rows and 4 %
gathering candidates. A posting costs a load, a product and an addition at a scattered place. Dense rows are limited by
the vector units. The best SHARE is near 0: MaxScore skips little on long queries, whose upper bounds sum to 16 times
the k-th score.
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
BATCH_KEYS = 1 << 26  # room for keys, up to one per passage; unused room takes no memory
# Terms are only looked up while their bounds together are below this share of the k-th score. A larger share leaves
# more candidates. Compared with 0.2, 0.06 is a fifth faster for 580 words at K 5,000, and 5 % slower for 32 at K 50.
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
    """Return the k best passages of each query, among passages that share a term with it.

    queries: texts, or the result of `Queries.read`. allowed: optional bool (index.size,), False excludes a passage.
    floor: optional float32 (queries,), scores that k passages of other shards have reached; passages below it may be
    omitted, because they cannot be among the k best of all. threads: changes the time only. ValueError if k or threads
    is below 1, or allowed has another shape.
    """
    _check(index, k, threads, allowed)
    if not isinstance(queries, Queries):
        queries = Queries.read(queries, index.analyzer)
    queries = queries.in_terms(index.terms)
    blocked = np.zeros(index.size, np.bool_) if allowed is None else ~allowed
    # an upper bound of all scores, whichever terms a shard has
    unit = np.exp2(SCORE_BITS - np.frexp(np.maximum(1, queries.lengths) * index.idf_limit)[1])
    least = np.zeros(len(queries), np.int64) if floor is None else (floor * unit).astype(np.int64)
    top = TopK(np.full((len(queries), k), -1, np.int64), np.zeros((len(queries), k), np.float32))
    most = max(1, min(BATCH, BATCH_KEYS // max(1, index.size)))
    batches = threads * -(-len(queries) // (threads * most))
    by_length = np.argsort(
        queries.lengths, kind="stable"
    )  # every batch gets short and long queries, so that batches end together

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
            f"allowed: {allowed.dtype} {allowed.shape}; must be bool ({index.size},), one value per passage"
        )


class Progress(NamedTuple):
    """The state of a batch's search."""

    first: np.ndarray
    """int64 (queries,): first term of each query that is added to all passages; terms before it are looked up"""
    need: np.ndarray
    """int64 (queries,): the least sum that may round to the k-th score so far"""
    keys: np.ndarray
    """uint64 (queries, passages): keys of candidates; unused room takes no memory"""
    found: np.ndarray
    """int64 (queries,): number of candidates"""
    full: np.ndarray
    """int64 (queries,): number of candidates that triggers pruning"""


@compiled
def _search(batch, postings, blocked, k):
    """Search the Postings of a shard for a Batch; blocked, bool (passages,), excludes passages.

    Return the keys of at least the k best passages per query, uint64 (queries, passages), unordered, and their numbers,
    int64 (queries,).
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
    """Sum up query q in the window that starts at passage `left`; sums, uint32 (passages,), must be zeros.

    Write the indices of passages that may reach the query's `need` to racing, uint32; return their number.
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
