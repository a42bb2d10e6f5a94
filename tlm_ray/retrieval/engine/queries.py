"""Turn queries into bags of numbered terms, once for all shards."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.bags import BagReader


@dataclass(frozen=True)
class Queries:
    """The distinct terms of queries with their counts."""

    terms: pa.Array = field(repr=False)
    """Arrow strings: the terms of all queries"""
    start: np.ndarray = field(repr=False)
    """int64 (queries + 1,): query q has the entries start[q] to start[q + 1]"""
    numbers: np.ndarray = field(repr=False)
    """int32 (entries,): indices into `terms`"""
    counts: np.ndarray = field(repr=False)
    """int32 (entries,): count of the term in the query"""
    lengths: np.ndarray = field(repr=False)
    """int64 (queries,): number of terms per query, including repeats and unknown terms"""

    @classmethod
    def read(cls, texts: Sequence[str] | pa.Array, analyzer: Analyzer) -> "Queries":
        """Analyse texts."""
        reader = BagReader(analyzer)
        bags = reader.read(texts)
        return cls(reader.terms(), bags.start(), bags.terms, bags.counts(), bags.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def in_terms(self, terms: pa.Array) -> "Queries":
        """Return the same queries with the numbers of other terms, without terms that are not among them."""
        if terms is self.terms:
            return self
        number = pc.index_in(self.terms, value_set=terms).fill_null(-1).to_numpy()[self.numbers]
        known = number >= 0
        start = np.concatenate([[0], np.cumsum(known)])[self.start]
        return Queries(terms, start, number[known], self.counts[known], self.lengths)

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the starts, numbers and counts of some of the queries."""
        sizes = np.diff(self.start)[rows]
        start = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], sizes)
        return start, self.numbers[places], self.counts[places]


def distinct_bags(texts: Sequence[str], analyzer: Analyzer) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return one text per distinct bag of terms, the row of its first occurrence, and the rows without a term."""
    bags = BagReader(analyzer).read(texts)
    start, counts = bags.start(), bags.counts()
    first: dict[bytes, int] = {}
    for row in np.flatnonzero(bags.sizes).tolist():
        mine = slice(start[row], start[row + 1])
        order = np.argsort(bags.terms[mine])
        first.setdefault(bags.terms[mine][order].tobytes() + counts[mine][order].tobytes(), row)
    rows = np.array(list(first.values()), np.int64)
    return [texts[row] for row in rows], rows, np.flatnonzero(bags.sizes == 0)


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return each distinct text once, and the row of its first occurrence."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(text, row)
    return list(first), np.array(list(first.values()), np.int64)
