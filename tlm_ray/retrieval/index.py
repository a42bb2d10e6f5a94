"""Postings of one shard with their BM25 weights computed ahead (eager scoring, Lu 2024)."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.statistics import Statistics

K1, B = 1.2, 0.75  # Lucene's defaults, which the released code used


@dataclass(frozen=True)
class Index:
    """The postings of one shard, grouped by term.

    vocabulary: term -> its number t. Postings of t are `passages[start[t]:start[t + 1]]` (int32, ascending, local to
    the shard) with `weights` (float32): what one occurrence of t in a query adds to the passage's score.
    """

    analyzer: Analyzer
    size: int
    vocabulary: dict[str, int] = field(repr=False)
    start: np.ndarray = field(repr=False)
    passages: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)


def index_passages(
    texts: Iterable[str | None] | pa.Array,
    *,
    analyzer: Analyzer | None = None,
    statistics: Statistics | None = None,
) -> Index:
    """Index the passages of one shard for BM25 with k1 1.2, b 0.75 and Lucene's idf.

    texts: a list of str or an Arrow string array; a null is an empty passage. statistics: those of the whole corpus;
    None means that this shard is the whole corpus. ValueError if the statistics lack a term of the texts.
    """
    analyzer = analyzer or Analyzer()
    texts = texts.to_pylist() if isinstance(texts, (pa.Array, pa.ChunkedArray)) else list(texts)
    if statistics is None:
        statistics = Statistics.collect(texts, analyzer)
    vocabulary, terms, passages, counts, lengths = _count(texts, analyzer)
    order = np.lexsort((passages, terms))
    terms, passages, counts = terms[order], passages[order], counts[order]
    start = np.searchsorted(terms, np.arange(len(vocabulary) + 1))
    idf = np.array([_idf(term, statistics) for term in vocabulary])
    saturation = counts / (counts + K1 * (1 - B + B * lengths[passages] / statistics.mean_terms))
    weights = (idf[terms] * saturation).astype(np.float32)
    return Index(analyzer, len(texts), vocabulary, start, passages, weights)


def _count(texts: list[str | None], analyzer: Analyzer):
    """Number the terms in order of appearance and count them passage by passage."""
    vocabulary: dict[str, int] = {}
    terms: list[int] = []
    counts: list[int] = []
    passages, lengths = [], np.zeros(len(texts), np.int64)
    for passage, text in enumerate(texts):
        bag = Counter(analyzer.terms(text or ""))
        lengths[passage] = bag.total()
        terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in bag])
        counts.extend(bag.values())
        passages.append(np.full(len(bag), passage, np.int32))
    joined = np.concatenate(passages) if passages else np.zeros(0, np.int32)
    return vocabulary, np.array(terms, np.int64), joined, np.array(counts, np.int64), lengths


def _idf(term: str, statistics: Statistics) -> float:
    """Lucene's inverse document frequency: log(1 + (N - df + 0.5) / (df + 0.5)), never negative."""
    frequency = statistics.frequencies.get(term)
    if not frequency:
        raise ValueError(
            f"statistics do not know the term {term!r}; collect them over all shards with the same analyzer"
        )
    return math.log1p((statistics.passages - frequency + 0.5) / (frequency + 0.5))
