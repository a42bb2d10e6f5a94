"""Collect the candidates of a query: passages whose sums may be among the k best, as keys.

A key is a uint64: the sum in the high half, the inverted passage id in the low half. The larger key is the better
passage, ties included. `need`, int64, is the least sum that may still be among the k best.
"""

import numpy as np

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.machine import prefetch
from tlm_ray.retrieval.engine.plan import LOW, points, step, steps
from tlm_ray.retrieval.engine.sums import HALF

BLOCK = 64  # passages of a window that are skipped together
BINS = 1024  # bins of the histogram that selects the best keys
KEYS_AHEAD = 8


@compiled
def gather(sums, least, racing):
    """Write the indices of the sums, uint32, of at least `least` to racing, uint32; return their number."""
    found = 0
    for block in range(0, len(sums), BLOCK):
        stop = min(block + BLOCK, len(sums))
        top = np.uint32(0)
        for j in range(block, stop):
            top = max(top, sums[j])
        if top >= least:
            for j in range(block, stop):
                racing[found] = j
                found += sums[j] >= least
    return found


@compiled
def collect(sums, racing, need, blocked, left, keys, found):
    """Append the keys of racing passages that reach `need` and are not blocked; return the new number of keys.

    blocked: bool (passages,). found: number of keys so far. sums: uint32, of the window that starts at passage `left`.
    """
    for c in range(len(racing)):
        passage = left + racing[c]
        if sums[racing[c]] >= need and not blocked[passage]:
            keys[found] = np.uint64(sums[racing[c]]) << HALF | (LOW - np.uint64(passage))
            found += 1
    return found


@compiled
def cut(keys, k, need, spread):
    """Keep the keys of all passages that may be among the k best; return the new `need` and the number of keys.

    spread: int64, the most by which a sum may be too large.
    """
    top = np.uint64(0)
    for i in range(len(keys)):
        top = max(top, keys[i])
    shift, low = np.uint64(0), np.uint64(need)
    while ((top >> HALF) - low) >> shift >= BINS:
        shift += np.uint64(1)
    bins = np.zeros(BINS, np.int64)
    for i in range(len(keys)):
        bins[((keys[i] >> HALF) - low) >> shift] += 1
    lowest, above = BINS, 0
    while above < k:
        lowest -= 1
        above += bins[lowest]
    kth = need + (lowest << np.int64(shift))  # or a little more
    need = max(need, kth - spread - (kth >> 23) - 1)  # two sums of one float32 are a tie
    kept = 0
    for i in range(len(keys)):
        keys[kept] = keys[i]
        kept += np.int64(keys[i] >> HALF) >= need
    return need, kept


@compiled
def sum_exactly(keys, rows, factors, exact):
    """Replace the rounded-up weights of dense rows in the keys' sums by the exact weights.

    rows: int32 (terms,), the dense rows of a query's terms, -1 for a posting list. factors: uint64 (terms,), as in
    Batch. exact: uint32 (passages, rows), as in Postings.
    """
    dense = np.flatnonzero(rows >= 0)
    rows, factors = rows[dense], factors[dense]
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
                total += np.int64(points(weight, factors[i])) - np.int64(steps(weight) * step(factors[i]))
        keys[c] = np.uint64(np.float32(total)) << HALF | (keys[c] & LOW)
