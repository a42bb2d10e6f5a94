"""Detect passages that leak a dev or test text: equal to one, or sharing a run of 13 words with one.

GPT-3's and later contamination studies use this run length. Runs are compared by 64-bit hashes. With 10^9 windows and
10^7 evaluation windows, the probability of a false positive is 1 in 2,000; it would cost one passage.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.lexicon import Lexicon, as_strings

RUN_WORDS = 13
# Odd multipliers of a polynomial hash, one per position in the window; fixed, so that all processes agree.
PLACES = np.random.Generator(np.random.Philox(13)).integers(0, 2**63, RUN_WORDS, dtype=np.uint64) * 2 + 1
SIEVE_BITS = 24  # 16 MB of flags by a hash's high bits exclude most windows before the lookup


class Contamination:
    """The runs of words that passages must not share, from dev and test texts; applied shard by shard."""

    def __init__(self, texts: Sequence[str]):
        lexicon = Lexicon()
        numbers, lengths = lexicon.read(as_strings(texts))
        self.words = lexicon.words()
        ends = np.cumsum(lengths)
        hashes = np.empty(len(numbers), np.uint64)
        runs, whole = _hash_texts(numbers, ends - lengths, ends, hashes)
        self.runs, self.whole = np.unique(hashes[:runs]), np.unique(hashes[len(hashes) - whole :])

    def find(self, texts: Sequence[str | None] | pa.Array) -> np.ndarray:
        """Return bool (len(texts),): True if a passage equals an evaluation text or shares a run with one."""
        texts, lexicon = as_strings(texts), Lexicon()
        numbers, lengths = lexicon.read(texts)
        known = pc.index_in(lexicon.words(), value_set=self.words).fill_null(-1).to_numpy()
        leaks = np.zeros(len(texts), np.bool_)
        sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
        sieve[self.runs >> np.uint64(64 - SIEVE_BITS)] = True
        ends = np.cumsum(lengths)
        _find(known[numbers], ends - lengths, ends, sieve, self.runs, self.whole, leaks)
        return leaks


@compiled
def _hash(numbers, start, stop):
    """Hash the run of up to 13 word numbers numbers[start:stop], int32, to a uint64."""
    total = np.uint64(stop - start)
    for i in range(start, stop):
        mixed = (np.uint64(numbers[i]) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        total += (mixed ^ mixed >> np.uint64(29)) * PLACES[i - start]
    return total


@compiled
def _hash_texts(numbers, starts, ends, hashes):
    """Write hashes of all runs from the front, and of shorter texts from the back; return both numbers.

    numbers: int32 (tokens,), word numbers. starts, ends: int64 (texts,), bounds of each text's tokens. hashes: uint64
    (tokens,), out.
    """
    runs = whole = 0
    for text in range(len(starts)):
        start, end = starts[text], ends[text]
        if start < end < start + RUN_WORDS:
            whole += 1
            hashes[len(hashes) - whole] = _hash(numbers, start, end)
        for stop in range(start + RUN_WORDS, end + 1):
            hashes[runs] = _hash(numbers, stop - RUN_WORDS, stop)
            runs += 1
    return runs, whole


@compiled
def _find(numbers, starts, ends, sieve, runs, whole, leaks):
    """Mark the texts that contain one of the runs or equal one of the whole texts.

    numbers: int32 (tokens,), word numbers among the evaluation texts' words, or -1. starts, ends: int64 (texts,),
    bounds of each text's tokens. sieve: bool (2^SIEVE_BITS,), True at the high bits of a run's hash. runs, whole:
    uint64, sorted hashes of runs and of shorter texts. leaks: bool (texts,), out.
    """
    for text in range(len(starts)):
        start, end = starts[text], ends[text]
        known = 0
        for i in range(start, end):
            known = known + 1 if numbers[i] >= 0 else 0
            if known >= RUN_WORDS:
                key = _hash(numbers, i + 1 - RUN_WORDS, i + 1)
                if sieve[key >> np.uint64(64 - SIEVE_BITS)] and _holds(runs, key):
                    leaks[text] = True
                    break
        if known == end - start and 0 < known < RUN_WORDS:
            leaks[text] = _holds(whole, _hash(numbers, start, end))


@compiled
def _holds(keys, key):
    """Return whether sorted keys, uint64, contain a key."""
    place = np.searchsorted(keys, key)
    return place < len(keys) and keys[place] == key
