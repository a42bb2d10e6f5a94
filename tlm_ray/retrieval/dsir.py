"""DSIR: passages drawn by how much likelier the task's words make them than the corpus does (Xie et al. 2023).

A text is a bag of hashed words and pairs of neighbouring words. With p and q the shares of the buckets in the task's
training texts and in the whole corpus, a passage weighs sum(count * log(p / q)); adding Gumbel noise and keeping the
largest draws without replacement in proportion to exp(weight). Cost: two readings of the corpus at the lexicon's rate,
whatever the number of queries. Words are the analyzer's plain ones; the authors' code also counts punctuation.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from tlm_ray.retrieval.lexicon import Lexicon, as_strings

BUCKETS = 10_000
SMOOTHING = 1e-8  # added to every share, as the authors' code does


def count_buckets(texts: Sequence[str | None] | pa.Array) -> np.ndarray:
    """Return how often the texts' words and pairs of words fall in each bucket, int64 (BUCKETS,)."""
    numbers, lengths, hashes = _read(texts)
    counts = np.zeros(BUCKETS, np.int64)
    _count(numbers, lengths, hashes, counts)
    return counts


def log_ratio(task: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """Return log(p / q) of each bucket from its counts in the task and in the corpus, float64 (BUCKETS,)."""
    p, q = (counts / max(1, counts.sum()) + SMOOTHING for counts in (task, corpus))
    return np.log(p) - np.log(q)


def log_weights(texts: Sequence[str | None] | pa.Array, ratio: np.ndarray) -> np.ndarray:
    """Return each text's log importance weight, float64 (len(texts),); it depends on the text and the ratio alone."""
    numbers, lengths, hashes = _read(texts)
    weights = np.zeros(len(lengths), np.float64)
    _weigh(numbers, lengths, hashes, ratio, weights)
    return weights


def gumbel(passages: np.ndarray, *, seed: int) -> np.ndarray:
    """Return standard Gumbel noise keyed by (seed, passage id), so that shards cannot show."""
    x = passages.astype(np.uint64) + np.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0x9E3779B97F4A7C15)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) + np.uint64(0x9E3779B97F4A7C15)
    uniform = ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def _read(texts: Sequence[str | None] | pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lexicon = Lexicon()
    numbers, lengths = lexicon.read(as_strings(texts))
    hashes = np.array([zlib.crc32(word.encode()) for word in lexicon.words().to_pylist()], np.uint64)
    return numbers, lengths, hashes


@njit(nogil=True, cache=True)
def _pair(first, second):
    """Return the bucket of two neighbouring words."""
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (second + np.uint64(0xBF58476D1CE4E5B9))
    mixed *= np.uint64(0x94D049BB133111EB)
    return (mixed ^ mixed >> np.uint64(32)) % np.uint64(BUCKETS)


@njit(nogil=True, cache=True)
def _count(numbers, lengths, hashes, counts):
    at = 0
    for length in lengths:
        for place in range(at, at + length):
            counts[hashes[numbers[place]] % np.uint64(BUCKETS)] += 1
            if place > at:
                counts[_pair(hashes[numbers[place - 1]], hashes[numbers[place]])] += 1
        at += length


@njit(nogil=True, cache=True)
def _weigh(numbers, lengths, hashes, ratio, weights):
    at = 0
    for text, length in enumerate(lengths):
        for place in range(at, at + length):
            weights[text] += ratio[hashes[numbers[place]] % np.uint64(BUCKETS)]
            if place > at:
                weights[text] += ratio[_pair(hashes[numbers[place - 1]], hashes[numbers[place]])]
        at += length
