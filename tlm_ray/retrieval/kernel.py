"""Exact search of one shard: what a query's terms add to each passage is summed up, the k best are kept.

- Sums are whole numbers. What a posting adds is scaled by a power of two that depends on the query and the corpus alone
  and rounded up; integers add up to the same bits in any order, so shards, threads, windows and skipping cannot show.
  The largest possible sum has 31 bits, so a sum is off by at most 2^-31 of it a term. Ranks are by the sum rounded to
  float32, which is the score, so that a merge of shards orders as a shard does.
- Passages are worked on in windows whose sums stay in the first-level cache, a batch of queries a window, so that what
  they share of it is read into the second level once.
- A frequent term's row is added in steps of one byte, rounded up: vector arithmetic on a quarter of the memory. What
  comes of it is an upper limit of each sum, off by at most the query's `spread`; the passages that may be among the k
  best are summed up exactly at the end, which are up to 10 % more than k (queries of 32 to 580 words).
- MaxScore (Turtle and Flood 1995): terms that together cannot lift a passage to the k-th best score so far are not
  added up, but looked up for the passages that the others leave in the race.
- A passage's key is its score above its id, inverted: one comparison of 64 bits decides, ties included. Keys are
  collected without order, and cut by a histogram whenever twice as many are there, which costs the same at any k.
- What is read next is prefetched where it is short or scattered: a window's parts of lists and rows, exact weights.

What is left, by a profile of 580-word queries at K 500: 55 % of the time adds lists, a load, a product and an addition
at a scattered place a posting; 26 % adds rows, on the vector units' limit; 4 % gathers candidates. SHARE near 0 says
that skipping has little left to give for such queries: their terms' limits add up to 16 times the k-th score.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from tlm_ray.retrieval.index import STEP_BITS, WHOLE, Index
from tlm_ray.retrieval.machine import prefetch
from tlm_ray.retrieval.queries import Queries
from tlm_ray.retrieval.topk import TopK

WINDOW = 4096  # passages; 4 bytes each
BATCH = 128  # queries
BATCH_KEYS = 1 << 26  # room for keys, which may be as many as passages; what is not used takes no memory
BLOCK = 64  # passages of a window that are passed over together
# Terms are only looked up while together they are below this share of the k-th score: the larger the share, the more
# passages stay in the race. Against 0.2, 0.06 is a fifth faster for 580 words at K 5,000, 5 % slower for 32 at K 50.
SHARE = 0.08
AHEAD = 4  # terms, for which the first lines of their part of a window are prefetched
LINE = 64  # bytes that a prefetch brings
LINES = 4
KEYS_AHEAD = 8
BINS = 1024  # of the histogram by which keys are cut
SCORE_BITS = 31
FRACTION_BITS = 32  # of a product of weight and factor, which has SCORE_BITS more
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


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
    the time only. ValueError if k or threads is below 1.
    """
    for name, value in (("k", k), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} {value!r}: must be a whole number of 1 or more")
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.shape != (index.size,)):
        raise ValueError(
            f"allowed: {allowed.dtype} {allowed.shape}; must be bool ({index.size},), one value for each passage"
        )
    if not isinstance(queries, Queries):
        queries = Queries.read(queries, index.analyzer)
    queries = queries.in_terms(index.terms)
    blocked = np.zeros(index.size, np.bool_) if allowed is None else ~allowed
    # no score reaches lengths * idf_limit, whichever of its terms a shard has
    unit = np.exp2(SCORE_BITS - np.frexp(np.maximum(1, queries.lengths) * index.idf_limit)[1])
    least = np.zeros(len(queries), np.int64) if floor is None else (floor * unit).astype(np.int64)
    top = TopK(np.full((len(queries), k), -1, np.int64), np.zeros((len(queries), k), np.float32))
    batch = max(1, min(BATCH, BATCH_KEYS // max(1, index.size)))
    batches = threads * -(-len(queries) // (threads * batch))
    by_length = np.argsort(queries.lengths, kind="stable")  # every batch gets short and long ones: they end together
    postings = (index.start, index.postings, index.row, index.coarse, index.exact, index.most)

    def work(number: int) -> None:
        mine = by_length[number::batches]
        start, terms, counts = queries.take(mine)
        scale = np.repeat(unit[mine], np.diff(start)) * (2.0**FRACTION_BITS / WHOLE)
        factors = np.maximum(1, np.rint(counts * index.idf[terms] * scale)).astype(np.uint64)
        keys, found = _search(start, terms, factors, least[mine], *postings, blocked, min(k, index.size))
        for q, row in enumerate(mine):
            best = np.sort(keys[q, : found[q]])[::-1][:k]
            top.ids[row, : len(best)] = LOW - (best & LOW)
            top.scores[row, : len(best)] = (best >> HALF) / unit[row]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(batches)))
    return top


@njit(nogil=True, cache=True)
def _points(weight, factor):
    """What a posting adds to a sum: at least 1, so that a passage that matches has a score."""
    return np.uint32((np.uint64(weight) * factor + LOW) >> np.uint64(FRACTION_BITS))


@njit(nogil=True, cache=True)
def _step(factor):
    """What one step of a row adds to a sum; as many as `_steps` are never less than the weight's points."""
    return np.uint32(factor >> np.uint64(FRACTION_BITS - STEP_BITS)) + np.uint32(1)


@njit(nogil=True, cache=True)
def _steps(weight):
    return np.uint32(weight >> np.uint32(STEP_BITS)) + np.uint32(1)


@njit(nogil=True, cache=True)
def _search(start, terms, factors, least, begin, postings, row, coarse, exact, most, blocked, k):
    """Search a batch, whose query q has the terms start[q] to start[q + 1]; return the keys of at least each query's k
    best passages, in no order, and how many there are."""
    queries, size = len(start) - 1, len(blocked)
    terms, factors, below, spread = _plan(start, terms, factors, row, most)
    at, end = begin[terms].astype(np.uint64), (begin[terms + 1] - 1).astype(np.uint64)
    rows = row[terms]
    first = start[:-1].copy()  # of each query's terms that are added up; those before are looked up
    need = np.maximum(1, least - (least >> 23) - 1)  # the least sum that may round up to the k-th score
    keys = np.empty((queries, size), np.uint64)  # only what is used takes memory
    found = np.zeros(queries, np.int64)
    full = np.full(queries, k + 1)  # keys that are cut
    sums, racing = np.zeros(WINDOW, np.uint32), np.empty(WINDOW, np.uint32)
    for left in range(0, size, WINDOW):
        width = min(WINDOW, size - left)
        for q in range(queries):
            stop = start[q + 1]
            if start[q] == stop or below[stop - 1] < need[q]:
                continue
            while first[q] < stop - 1 and below[first[q]] < need[q] * SHARE:
                first[q] += 1
            for i in range(first[q], stop):
                if rows[i] < 0:
                    if i + AHEAD < stop:
                        for line in range(LINES):
                            prefetch(postings, at[i + AHEAD] + np.uint64(line * LINE // 8))
                    at[i] = _add_list(sums, postings, at[i], left, width, factors[i])
            for i in range(first[q], stop):
                if rows[i] >= 0:
                    if i + 1 < stop and rows[i + 1] >= 0:
                        for line in range(LINES):
                            prefetch(coarse, rows[i + 1] * size + left + line * LINE)
                    _add_row(sums, coarse[rows[i], left : left + width], _step(factors[i]))
            slack = below[first[q] - 1] if first[q] > start[q] else 0
            count = _gather(sums, width, need[q] - slack, racing)
            for i in range(first[q] - 1, start[q] - 1, -1):
                reach = need[q] - (below[i - 1] if i > start[q] else 0)
                if rows[i] >= 0:
                    weights = coarse[rows[i], left : left + width]
                    count = _look_up_row(sums, racing, count, weights, _step(factors[i]), reach)
                else:
                    count, at[i] = _look_up_list(sums, racing, count, postings, at[i], end[i], left, factors[i], reach)
            for c in range(count):
                passage = left + racing[c]
                if sums[racing[c]] >= need[q] and not blocked[passage]:
                    keys[q, found[q]] = np.uint64(sums[racing[c]]) << HALF | (LOW - np.uint64(passage))
                    found[q] += 1
            sums[:width] = 0
            if found[q] >= full[q]:
                need[q], found[q] = _cut(keys[q], found[q], k, need[q], spread[q])
                full[q] = 2 * found[q]
    for q in range(queries):
        if found[q] > k:
            _, found[q] = _cut(keys[q], found[q], k, need[q], spread[q])
        mine = slice(start[q], start[q + 1])
        _sum_exactly(keys[q, : found[q]], rows[mine], factors[mine], exact)
    return keys, found


@njit(nogil=True, cache=True)
def _plan(start, terms, factors, row, most):
    """Sort each query's terms by the most that they add; return them, their factors, what they and the terms before add
    at most together, and by how much a query's sums may be too large."""
    terms, factors = terms.copy(), factors.copy()
    below, spread = np.empty(len(terms), np.int64), np.zeros(len(start) - 1, np.int64)
    for q in range(len(start) - 1):
        mine = slice(start[q], start[q + 1])
        limits = below[mine]
        for i in range(start[q], start[q + 1]):
            if row[terms[i]] < 0:
                below[i] = _points(most[terms[i]], factors[i])
            else:
                below[i] = np.int64(_steps(most[terms[i]])) * np.int64(_step(factors[i]))
                spread[q] += np.int64(_step(factors[i])) + 256
        order = np.argsort(limits)
        terms[mine], factors[mine] = terms[mine][order], factors[mine][order]
        below[mine] = np.cumsum(limits[order])
    return terms, factors, below, spread


@njit(nogil=True, cache=True)
def _add_list(sums, postings, at, left, width, factor):
    """Add a list's postings up to the window's end; return the place of the next. A list ends with LAST."""
    limit, base = np.uint64(left + width) << HALF, np.uint64(left)
    posting = postings[at]
    while posting < limit:
        sums[(posting >> HALF) - base] += _points(posting & LOW, factor)
        at += np.uint64(1)
        posting = postings[at]
    return at


@njit(nogil=True, cache=True)
def _add_row(sums, steps, step):
    for j in range(len(steps)):
        sums[j] += np.uint32(steps[j]) * step


@njit(nogil=True, cache=True)
def _gather(sums, width, least, racing):
    """List the passages whose sum is `least` or more; return how many."""
    found = 0
    for block in range(0, width, BLOCK):
        stop = min(block + BLOCK, width)
        top = np.uint32(0)
        for j in range(block, stop):
            top = max(top, sums[j])
        if top >= least:
            for j in range(block, stop):
                racing[found] = j
                found += sums[j] >= least
    return found


@njit(nogil=True, cache=True)
def _look_up_row(sums, racing, count, steps, step, reach):
    """Add a row's steps to the racing passages; keep those that can still reach the k-th score."""
    kept = 0
    for c in range(count):
        j = racing[c]
        sums[j] += np.uint32(steps[j]) * step
        racing[kept] = j
        kept += sums[j] >= reach
    return kept


@njit(nogil=True, cache=True)
def _look_up_list(sums, racing, count, postings, at, end, left, factor, reach):
    """As `_look_up_row`, by galloping through a list; return how many are kept and the place in the list."""
    kept = 0
    for c in range(count):
        j = racing[c]
        target = np.uint64(left + j) << HALF
        step, ahead = np.uint64(1), at
        while ahead < end and postings[ahead] < target:
            at = ahead + np.uint64(1)
            ahead += step
            step += step
        high = min(ahead, end)
        while at < high:
            middle = (at + high) >> np.uint64(1)
            if postings[middle] < target:
                at = middle + np.uint64(1)
            else:
                high = middle
        if at < end and postings[at] >> HALF == np.uint64(left + j):
            sums[j] += _points(postings[at] & LOW, factor)
        racing[kept] = j
        kept += sums[j] >= reach
    return kept, at


@njit(nogil=True, cache=True)
def _cut(keys, count, k, need, spread):
    """Keep the keys of all passages that may be among the k best; return the least sum of them and how many."""
    top = np.uint64(0)
    for i in range(count):
        top = max(top, keys[i])
    shift, low = np.uint64(0), np.uint64(need)
    while ((top >> HALF) - low) >> shift >= BINS:
        shift += np.uint64(1)
    bins = np.zeros(BINS, np.int64)
    for i in range(count):
        bins[((keys[i] >> HALF) - low) >> shift] += 1
    lowest, above = BINS, 0
    while above < k:
        lowest -= 1
        above += bins[lowest]
    kth = need + (lowest << np.int64(shift))  # or a little more
    need = max(need, kth - spread - (kth >> 23) - 1)  # two sums of one float32 are a tie
    kept = 0
    for i in range(count):
        keys[kept] = keys[i]
        kept += np.int64(keys[i] >> HALF) >= need
    return need, kept


@njit(nogil=True, cache=True)
def _sum_exactly(keys, rows, factors, exact):
    """Put into the keys what the rows' weights add, in place of their steps."""
    kept = np.flatnonzero(rows >= 0)
    rows, factors = rows[kept], factors[kept]
    for c in range(len(keys)):
        if c + KEYS_AHEAD < len(keys):
            ahead = np.int64(LOW - (keys[c + KEYS_AHEAD] & LOW)) * exact.shape[1]
            for row in rows:
                prefetch(exact, ahead + row)
        passage = np.int64(LOW - (keys[c] & LOW))
        total = np.int64(keys[c] >> HALF)
        for i in range(len(rows)):
            weight = exact[passage, rows[i]]
            if weight:
                total += np.int64(_points(weight, factors[i])) - np.int64(_steps(weight) * _step(factors[i]))
        keys[c] = np.uint64(np.float32(total)) << HALF | (keys[c] & LOW)
