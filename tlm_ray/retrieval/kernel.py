"""Exact search of one shard: what a query's terms add to each passage is summed up, the k best are kept.

- Sums are whole numbers. A weight is scaled by a power of two that depends on the query and the corpus alone and
  rounded; integers add up to the same bits in any order, so shards, threads, windows and skipping cannot show. The
  largest possible sum has 31 bits, so a sum is off by at most half of 2^-31 of it a term. Ranks are by the sum rounded
  to float32, which is the score, so that a merge of shards orders as a shard does.
- Passages are worked on in windows whose sums stay in the first-level cache.
- MaxScore (Turtle and Flood 1995): terms that together cannot lift a passage to the k-th best score so far are not
  added up, but looked up for the passages that the others leave in the race.
- A passage's key is its score above its id, inverted: one comparison of 64 bits decides, ties included. Keys are
  collected without order, and cut to the k best whenever twice as many are there, which costs the same at any k.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.compute as pc
from numba import njit

from tlm_ray.retrieval.bags import BagReader
from tlm_ray.retrieval.index import Index
from tlm_ray.retrieval.topk import TopK

WINDOW = 8192  # passages; 4 bytes each
BLOCK = 64  # passages of a window that are passed over together
# Terms are only looked up while together they are below this share of the k-th score: the larger the share, the more
# passages stay in the race. Not tuned yet; a first sketch found 0.35 the best of 0.2 to 1.
SHARE = 0.5
SCORE_BITS = 31
PARTS_A_THREAD = 8  # queries differ in cost


def search(
    index: Index,
    queries: Sequence[str],
    *,
    k: int,
    threads: int = 1,
    allowed: np.ndarray | None = None,
    floor: np.ndarray | None = None,
) -> TopK:
    """Return the k best passages of each query among those that share a term with it.

    queries: texts, analysed like the passages. allowed: optional bool (index.size,), False leaves a passage out.
    floor: optional float32 (queries,), scores that k passages of other shards have reached; a passage below may be
    left out, because it cannot be among the k best of all. threads changes the time only. ValueError if k or threads
    is below 1.
    """
    for name, value in (("k", k), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} {value!r}: must be a whole number of 1 or more")
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.shape != (index.size,)):
        raise ValueError(
            f"allowed: {allowed.dtype} {allowed.shape}; must be bool ({index.size},), one value for each passage"
        )
    blocked = np.zeros(index.size, np.bool_) if allowed is None else ~allowed
    start, terms, factors, unit = _encode(index, queries)
    least = np.zeros(len(queries), np.int64) if floor is None else (floor * unit).astype(np.int64)
    ids = np.full((len(queries), k), -1, np.int64)
    scores = np.zeros((len(queries), k), np.float32)
    postings = (index.start, index.passages, index.weights, index.row, index.rows, index.most)
    parts = threads * PARTS_A_THREAD if threads > 1 else 1
    bounds = np.linspace(0, len(queries), parts + 1).astype(np.int64)

    def work(part: int) -> None:
        mine = slice(bounds[part], bounds[part + 1])
        own = start[bounds[part] : bounds[part + 1] + 1]
        _search(
            own,
            terms,
            factors,
            unit[mine],
            least[mine],
            *postings,
            blocked,
            min(k, index.size),
            ids[mine],
            scores[mine],
        )

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(parts)))
    return TopK(ids, scores)


def _encode(index: Index, queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Turn queries into runs of (term number, factor of its weights), each term once, and the unit of their sums."""
    reader = BagReader(index.analyzer)
    bags = reader.read(queries)
    known = pc.index_in(reader.terms(), value_set=index.terms).fill_null(-1).to_numpy().astype(np.int64)
    terms = known[bags.terms]
    query = np.repeat(np.arange(len(queries)), bags.sizes)
    start = np.concatenate([[0], np.cumsum(np.bincount(query[terms >= 0], minlength=len(queries)))])
    # no score reaches lengths * idf_limit, whichever of its terms a shard has
    unit = np.exp2(SCORE_BITS - np.frexp(np.maximum(1, bags.lengths) * index.idf_limit)[1])
    factors = (bags.counts * unit[query]).astype(np.float32)
    return start, terms[terms >= 0], factors[terms >= 0], unit


@njit(nogil=True, cache=True)
def _points(weight, factor):
    """What a posting adds to a sum: at least 1, so that a passage that matches has a score."""
    return max(np.int32(1), np.int32(weight * factor + np.float32(0.5)))


@njit(nogil=True, cache=True)
def _search(starts, terms, factors, unit, least, start, passages, weights, row, rows, most, blocked, k, ids, scores):
    size = len(blocked)
    sums = np.zeros(WINDOW, np.int32)
    racing = np.empty(WINDOW, np.int32)
    keys = np.empty(2 * k + WINDOW, np.uint64)
    for query in range(len(starts) - 1):
        mine = terms[starts[query] : starts[query + 1]]
        count = len(mine)
        if count == 0 or size == 0:
            continue
        limits = np.empty(count, np.int64)
        for i in range(count):
            limits[i] = _points(most[mine[i]], factors[starts[query] + i])
        order = np.argsort(limits)
        mine, factor = mine[order], factors[starts[query] : starts[query + 1]][order]
        below = np.cumsum(limits[order])  # what terms 0 to i add at most
        at = start[mine]
        found, first, is_full = 0, 0, False
        bar = np.uint64(max(1, least[query])) << np.uint64(32)  # no id makes a key of this score smaller
        for left in range(0, size, WINDOW):
            width = min(WINDOW, size - left)
            best_score = int(bar >> np.uint64(32))
            need = max(1, best_score - (best_score >> 24) - 1)  # the least sum that may round up to it
            if below[count - 1] < need:
                break
            while first < count - 1 and below[first] < need * SHARE:
                first += 1
            slack = below[first - 1] if first > 0 else 0
            for i in range(first, count):
                if row[mine[i]] >= 0:
                    _add_row(sums, rows[row[mine[i]], left : left + width], factor[i])
                else:
                    at[i] = _add_list(sums, passages, weights, at[i], start[mine[i] + 1], left, width, factor[i])
            left_over = _gather(sums, width, need - slack, racing)
            for i in range(first - 1, -1, -1):
                reach = need - (below[i - 1] if i > 0 else 0)
                if row[mine[i]] >= 0:
                    left_over = _look_up_row(
                        sums, racing, left_over, rows[row[mine[i]], left : left + width], factor[i], reach
                    )
                else:
                    left_over, at[i] = _look_up_list(
                        sums, racing, left_over, passages, weights, at[i], start[mine[i] + 1], left, factor[i], reach
                    )
            for c in range(left_over):
                passage = left + racing[c]
                score = np.uint64(np.float32(sums[racing[c]]))
                key = score << np.uint64(32) | np.uint64(0xFFFFFFFF - passage)
                if key > bar and not blocked[passage]:
                    keys[found] = key
                    found += 1
            sums[:width] = 0
            if found >= 2 * k or (found > k and not is_full):
                bar = _keep_largest(keys, found, k)
                found, is_full = k, True
        if found > k:
            _keep_largest(keys, found, k)
            found = k
        best = np.sort(keys[:found])
        for rank in range(found):
            key = best[found - 1 - rank]
            ids[query, rank] = 0xFFFFFFFF - np.int64(key & np.uint64(0xFFFFFFFF))
            scores[query, rank] = np.int64(key >> np.uint64(32)) / unit[query]


@njit(nogil=True, cache=True)
def _add_row(sums, weights, factor):
    for j in range(len(weights)):
        points = max(np.int32(1), np.int32(weights[j] * factor + np.float32(0.5)))
        sums[j] += points if weights[j] > 0 else np.int32(0)


@njit(nogil=True, cache=True)
def _add_list(sums, passages, weights, at, stop, left, width, factor):
    """Add a list's postings up to the window's end; return the place of the next."""
    right = left + width
    while at < stop and passages[at] < right:
        sums[passages[at] - left] += _points(weights[at], factor)
        at += 1
    return at


@njit(nogil=True, cache=True)
def _gather(sums, width, least, racing):
    """List the passages whose sum is `least` or more; return how many."""
    found = 0
    for block in range(0, width, BLOCK):
        stop = min(block + BLOCK, width)
        top = np.int32(0)
        for j in range(block, stop):
            top = max(top, sums[j])
        if top >= least:
            for j in range(block, stop):
                racing[found] = j
                found += sums[j] >= least
    return found


@njit(nogil=True, cache=True)
def _look_up_row(sums, racing, count, weights, factor, reach):
    """Add a row's weights to the racing passages; keep those that can still reach the bar."""
    kept = 0
    for c in range(count):
        j = racing[c]
        if weights[j] > 0:
            sums[j] += _points(weights[j], factor)
        racing[kept] = j
        kept += sums[j] >= reach
    return kept


@njit(nogil=True, cache=True)
def _look_up_list(sums, racing, count, passages, weights, at, stop, left, factor, reach):
    """As `_look_up_row`, by galloping through a list; return how many are kept and the place in the list."""
    kept = 0
    for c in range(count):
        j = racing[c]
        step, ahead = 1, at
        while ahead < stop and passages[ahead] < left + j:
            at = ahead + 1
            ahead += step
            step *= 2
        high = min(ahead, stop)
        while at < high:
            middle = (at + high) >> 1
            if passages[middle] < left + j:
                at = middle + 1
            else:
                high = middle
        if at < stop and passages[at] == left + j:
            sums[j] += _points(weights[at], factor)
        racing[kept] = j
        kept += sums[j] >= reach
    return kept, at


@njit(nogil=True, cache=True)
def _keep_largest(keys, count, k):
    """Move the k largest keys to the front (Hoare's quickselect) and return the smallest of them."""
    low, high = 0, count - 1
    while low < high:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            high = j
        elif k - 1 >= i:
            low = i
        else:
            break
    return keys[k - 1]
