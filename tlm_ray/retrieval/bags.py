"""Texts to bags of terms: the distinct terms of each text and how often each occurs, as flat arrays.

Terms are a lexicon's words after stop words and stemming, which are worked out once a distinct word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.lexicon import Lexicon, as_strings

CHUNK_BYTES = 1 << 24  # of text read at once: its words take up to twice that
STOPPED = -1  # the term of a stop word


@dataclass(frozen=True)
class Bags:
    """The bags of some texts, one after the other.

    terms, counts: int32, a term number and its occurrences in the text. sizes: int32 (texts,) distinct terms of each
    text. lengths: int64 (texts,) terms of each text, repeats included.
    """

    terms: np.ndarray
    counts: np.ndarray
    sizes: np.ndarray
    lengths: np.ndarray

    @classmethod
    def join(cls, parts: Sequence["Bags"]) -> "Bags":
        """Put bags of the same reader behind one another."""
        columns = ("terms", "counts", "sizes", "lengths")
        return cls(*(np.concatenate([getattr(part, column) for part in parts]) for column in columns))


class BagReader:
    """Reads texts into bags and numbers their terms in order of appearance."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self._lexicon = Lexicon()
        self._numbers: dict[str, int] = {}  # of terms; unused where each word is a term
        self._term_of_word = np.zeros(0, np.int32)
        self._place = np.zeros(0, np.int64)  # of each term's latest occurrence among the bags

    def read(self, texts: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> Bags:
        """Return the bags of texts; a null is an empty bag."""
        return Bags.join([self._read(part) for part in _chunks(as_strings(texts))])

    def terms(self) -> pa.Array:
        """Return all terms so far; number t is the t-th."""
        return pa.array(self._numbers, pa.large_string()) if self.analyzer.changes_words else self._lexicon.words()

    def __len__(self) -> int:
        return len(self._numbers) if self.analyzer.changes_words else len(self._lexicon)

    def _read(self, texts: pa.Array) -> Bags:
        terms, lengths = self._lexicon.read(texts)
        if self.analyzer.changes_words:
            self._fold_new_words()
            terms = self._term_of_word[terms]
        grown = len(self) - len(self._place)
        self._place = np.concatenate([self._place, np.full(grown, -1)]) if grown else self._place
        self._place.fill(-1)
        counts, sizes = np.empty(len(terms), np.int32), np.empty(len(texts), np.int32)
        size = _gather(terms, lengths, self._place, counts, sizes)
        return Bags(terms[:size].copy(), counts[:size].copy(), sizes, lengths)

    def _fold_new_words(self) -> None:
        new = self._lexicon.words(len(self._term_of_word)).to_pylist()
        folded = [
            STOPPED if term is None else self._numbers.setdefault(term, len(self._numbers))
            for term in self.analyzer.fold(new)
        ]
        self._term_of_word = np.concatenate([self._term_of_word, np.array(folded, np.int32)])


def _chunks(texts: pa.Array) -> Iterator[pa.Array]:
    """Cut an array into parts of about CHUNK_BYTES, so that memory beside the bags stays bounded."""
    rows = max(1, int(len(texts) * CHUNK_BYTES / max(1, texts.nbytes)))
    for start in range(0, max(1, len(texts)), rows):
        yield texts[start : start + rows]


@njit(nogil=True, cache=True)
def _gather(terms: Any, lengths: Any, place: Any, counts: Any, sizes: Any) -> int:
    """Move each text's distinct terms to the front, in place, and count them; lengths lose the stop words."""
    at = kept = 0
    for text in range(len(lengths)):
        first, stopped = kept, 0
        for _ in range(lengths[text]):
            term = terms[at]
            at += 1
            if term < 0:
                stopped += 1
            elif place[term] >= first:
                counts[place[term]] += 1
            else:
                place[term] = kept
                terms[kept], counts[kept] = term, 1
                kept += 1
        lengths[text] -= stopped
        sizes[text] = kept - first
    return kept
