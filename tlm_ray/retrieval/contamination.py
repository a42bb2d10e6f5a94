"""Passages that would leak a dev or test text: equal to one, or sharing a run of 13 words with one.

The run length is the one that GPT-3's and later contamination studies use. Words are compared by hash: 64 bits make a
false alarm among 10^9 windows against 10^7 evaluation windows about a one in 2,000 event, and its cost is one passage.
"""

from collections.abc import Sequence

import numpy as np

from tlm_ray.retrieval.analyzer import Analyzer

RUN_WORDS = 13
# Odd multipliers of a polynomial hash, one a place in the window; fixed, so that results do not depend on a process.
PLACES = np.random.Generator(np.random.Philox(13)).integers(0, 2**63, RUN_WORDS, dtype=np.uint64) * 2 + 1
WORDS = Analyzer()


class Contamination:
    """The runs of words that passages must not share: built from dev and test texts, then asked shard by shard."""

    def __init__(self, texts: Sequence[str]):
        self.words: dict[str, int] = {}
        rows = [[self.words.setdefault(word, len(self.words)) for word in WORDS.terms(text)] for text in texts]
        self.whole = {tuple(row) for row in rows if row and len(row) < RUN_WORDS}
        self.runs = np.unique(_runs(*_flat(rows))[0])

    def find(self, texts: Sequence[str | None]) -> np.ndarray:
        """Return bool (len(texts),): True where a passage equals an evaluation text or shares a run with one."""
        rows = [[self.words.get(word, -1) for word in WORDS.terms(text or "")] for text in texts]
        leaks = np.array([tuple(row) in self.whole for row in rows], np.bool_)
        hashes, passage = _runs(*_flat(rows))
        if len(self.runs) and len(hashes):
            place = np.minimum(np.searchsorted(self.runs, hashes), len(self.runs) - 1)
            leaks[passage[self.runs[place] == hashes]] = True
        return leaks


def _flat(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.fromiter((number for row in rows for number in row), np.int64)
    return numbers, np.array([len(row) for row in rows], np.int64)


def _runs(numbers: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of each 13-word window without an unknown word, and the row that it lies in."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    windows = max(0, len(numbers) - RUN_WORDS + 1)
    known = np.concatenate([[0], np.cumsum(numbers >= 0)])
    whole = (row[:windows] == row[RUN_WORDS - 1 :]) & (known[RUN_WORDS:] - known[:windows] == RUN_WORDS)
    at = np.flatnonzero(whole)
    hashes = np.zeros(len(at), np.uint64)
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    for place, factor in enumerate(PLACES):
        hashes += mixed[at + place] * factor
    return hashes, row[at]
