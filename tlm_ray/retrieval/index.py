"""Postings of one shard with their BM25 weights computed ahead (eager scoring, Lu 2024).

A term that is in more than one in DENSE passages is a row of weights, one for each passage, because adding a row is
vector arithmetic and looking up a passage in it is one load; any other is a list of passages, whose additions are
scattered. Where the one overtakes the other is not measured yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.bags import BagReader, Bags
from tlm_ray.retrieval.statistics import Statistics

K1, B = 1.2, 0.75  # Lucene's defaults, which the released code used
DENSE = 8


@dataclass(frozen=True)
class Index:
    """The postings of one shard, grouped by term.

    terms: Arrow strings, the t-th is term t. What one occurrence of t in a query adds to a passage's score is in
    `rows[row[t]]`, float32 (size,), where row[t] is not -1; else the passages `passages[start[t]:start[t + 1]]`
    (int32, ascending, local to the shard) have the `weights` there (float32). most: float32, each term's largest
    weight. idf_limit: no term of the whole corpus has a larger idf.
    """

    analyzer: Analyzer
    size: int
    idf_limit: float
    terms: pa.Array = field(repr=False)
    start: np.ndarray = field(repr=False)
    passages: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    row: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    most: np.ndarray = field(repr=False)

    def postings(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the passages of a term, ascending, and their weights."""
        if self.row[term] >= 0:
            passages = np.flatnonzero(self.rows[self.row[term]]).astype(np.int32)
            return passages, self.rows[self.row[term]][passages]
        mine = slice(self.start[term], self.start[term + 1])
        return self.passages[mine], self.weights[mine]

    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all postings as lists: passages, weights and where each term starts, int64 (terms + 1,)."""
        every = [self.postings(term) for term in range(len(self.terms))]
        start = np.cumsum([0, *(len(passages) for passages, _ in every)])
        passages, weights = zip(*every, strict=True) if every else ((self.passages,), (self.weights,))
        return np.concatenate(passages), np.concatenate(weights), start


def index_passages(
    texts: Sequence[str | None] | pa.Array | pa.ChunkedArray,
    *,
    analyzer: Analyzer | None = None,
    statistics: Statistics | None = None,
    only: pa.Array | None = None,
) -> Index:
    """Index the passages of one shard for BM25 with k1 1.2, b 0.75 and Lucene's idf.

    texts: a list of str or an Arrow string array; a null is an empty passage. statistics: those of the whole corpus;
    None means that this shard is the whole corpus. only: Arrow strings, the terms to keep, which are all that queries
    of a corpus that is read once have; None keeps every term. ValueError if the statistics lack a term of the texts.
    """
    analyzer = analyzer or Analyzer()
    reader = BagReader(analyzer)
    bags = reader.read(texts)
    terms = reader.terms()
    statistics = statistics or Statistics.of(reader, bags)
    if only is None:
        return _index(analyzer, bags, np.arange(len(terms)), terms, statistics)
    kept = pc.index_in(terms, value_set=only).is_valid().to_numpy(zero_copy_only=False)
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    return _index(analyzer, bags, number, terms.filter(kept), statistics)


def _index(analyzer: Analyzer, bags: Bags, number: np.ndarray, terms: pa.Array, statistics: Statistics) -> Index:
    """Index bags; number: for each term of the bags that of the index, or -1."""
    size, idf = len(bags.sizes), _idf(terms, statistics)
    number = number.astype(np.int32)
    frequency = _frequencies(bags.terms, number, len(terms))
    row = np.where(frequency * DENSE > size, 0, -1).astype(np.int32)
    row[row == 0] = np.arange(np.count_nonzero(row == 0))
    start = np.concatenate([[0], np.cumsum(np.where(row < 0, frequency, 0))])
    passages, weights = np.empty(start[-1], np.int32), np.empty(start[-1], np.float32)
    rows = np.zeros((np.count_nonzero(row >= 0), size), np.float32)
    most = np.zeros(len(terms), np.float32)
    norm = K1 * (1 - B + B * bags.lengths / statistics.mean_terms)
    end = start[:-1].copy()
    _fill(bags.terms, bags.counts, bags.sizes, number, norm, idf, end, row, passages, weights, rows, most)
    limit = float(np.log1p((statistics.passages - 0.5) / 1.5)) if statistics.passages else 1.0
    return Index(analyzer, size, limit, terms, start, passages, weights, row, rows, most)


def _idf(terms: pa.Array, statistics: Statistics) -> np.ndarray:
    """Lucene's inverse document frequency of each term: log(1 + (N - df + 0.5) / (df + 0.5)), never negative."""
    known = statistics.frequencies
    frequency = np.fromiter((known.get(term, 0) for term in terms.to_pylist()), np.float64, len(terms))
    if not frequency.all():
        term = terms[int(np.argmin(frequency))].as_py()
        raise ValueError(
            f"statistics do not know the term {term!r}; collect them over all shards with the same analyzer"
        )
    return np.log1p((statistics.passages - frequency + 0.5) / (frequency + 0.5))


@njit(nogil=True, cache=True)
def _frequencies(terms, number, size):
    """Count the passages of each term of the index."""
    counted = np.zeros(size, np.int64)
    for term in terms:
        if number[term] >= 0:
            counted[number[term]] += 1
    return counted


@njit(nogil=True, cache=True)
def _fill(terms, counts, sizes, number, norm, idf, end, row, passages, weights, rows, most):
    """Turn bags, passage by passage, into postings and rows, term by term. end[t]: where t's next posting goes."""
    at = 0
    for passage in range(len(sizes)):
        for _ in range(sizes[passage]):
            term, count = number[terms[at]], counts[at]
            at += 1
            if term < 0:
                continue
            weight = np.float32(idf[term] * (count / (count + norm[passage])))
            if weight > most[term]:
                most[term] = weight
            if row[term] >= 0:
                rows[row[term], passage] = weight
            else:
                passages[end[term]], weights[end[term]] = passage, weight
                end[term] += 1
