"""Turn texts into bags of terms: the distinct terms of each text with their counts, as flat arrays.

Terms are a lexicon's words after stop-word removal and stemming, which run once per distinct word.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.lexicon import Lexicon, as_strings

CHUNK_BYTES = 1 << 21  # bytes of text read at once, to limit memory; 0.5 to 16 MB are equally fast
BYTES_PER_TERM = 6  # bytes of text per term of a bag, about 10 in English; unused room takes no memory
SATURATED = 255  # the largest count of one byte
STOPPED = -1  # the term of a stop word


class Bags(NamedTuple):
    """The bags of some texts, concatenated."""

    terms: np.ndarray
    """int32 (entries,): term numbers"""
    small_counts: np.ndarray
    """uint8 (entries,): count of each term in its text, SATURATED for 255 or more"""
    large_counts: np.ndarray
    """int32: the counts of 255 or more, in order"""
    sizes: np.ndarray
    """int32 (texts,): number of distinct terms of each text"""
    lengths: np.ndarray
    """int64 (texts,): number of terms of each text, repeats included"""

    def counts(self) -> np.ndarray:
        """Return the count of each term in its text, int32."""
        counts = self.small_counts.astype(np.int32)
        counts[self.small_counts == SATURATED] = self.large_counts
        return counts

    def start(self) -> np.ndarray:
        """Return the start of each text's terms, and the end: int64 (texts + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    def mean_terms(self) -> float:
        """Return the texts' mean length in terms; 1 if there are no terms."""
        return float(self.lengths.sum() / len(self.lengths)) if self.lengths.any() else 1.0


class BagReader:
    """Turns texts into bags and numbers their terms in order of appearance."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self._lexicon = Lexicon()
        self._numbers: dict[str, int] = {}  # numbers of terms; unused if each word is a term
        self._term_of_word = np.zeros(0, np.int32)
        self._place = np.zeros(0, np.int32)  # of each term's latest occurrence in the bags
        self._counts = np.zeros(0, np.int32)

    def read(self, texts: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> Bags:
        """Return the bags of texts; a null is an empty bag."""
        texts = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([as_strings(texts)])
        room = texts.nbytes // BYTES_PER_TERM
        terms, small, large = np.empty(room, np.int32), np.empty(room, np.uint8), [np.zeros(0, np.int32)]
        sizes, lengths = np.empty(len(texts), np.int32), np.empty(len(texts), np.int64)
        at = done = 0
        for part in _parts(texts):
            rows = slice(done, done := done + len(part))
            own_terms, own_counts, lengths[rows] = self._read(part, sizes[rows])
            end = at + len(own_terms)
            if end > len(terms):
                terms, small = _grown(terms, at, 2 * end), _grown(small, at, 2 * end)
            terms[at:end], small[at:end] = own_terms, np.minimum(own_counts, SATURATED)
            large.append(own_counts[own_counts >= SATURATED])
            at = end
        return Bags(terms[:at], small[:at], np.concatenate(large), sizes, lengths)

    def terms(self) -> pa.Array:
        """Return all terms so far; term number t is the t-th."""
        return pa.array(self._numbers, pa.large_string()) if self.analyzer.changes_words else self._lexicon.words()

    def __len__(self) -> int:
        return len(self._numbers) if self.analyzer.changes_words else len(self._lexicon)

    def _read(self, texts: pa.Array, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Write the texts' bag sizes; return terms and counts, which the next call overwrites, and text lengths."""
        terms, lengths = self._lexicon.read(texts)
        if self.analyzer.changes_words:
            self._fold_new_words()
            terms = self._term_of_word[terms]
        if len(self._place) < len(self):
            self._place = np.empty(2 * len(self), np.int32)
        self._place[: len(self)] = -1
        if len(self._counts) < len(terms):
            self._counts = np.empty(2 * len(terms), np.int32)
        size = _gather(terms, lengths, self._place, self._counts, sizes)
        return terms[:size], self._counts[:size], lengths

    def _fold_new_words(self) -> None:
        new = self._lexicon.words(len(self._term_of_word)).to_pylist()
        folded = [
            STOPPED if term is None else self._numbers.setdefault(term, len(self._numbers))
            for term in self.analyzer.fold(new)
        ]
        self._term_of_word = np.concatenate([self._term_of_word, np.array(folded, np.int32)])


def _parts(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Cut an array into string arrays of about CHUNK_BYTES, without joining its chunks, which would copy them."""
    for chunk in map(as_strings, texts.chunks):
        rows = max(1, int(len(chunk) * CHUNK_BYTES / max(1, chunk.nbytes)))
        for start in range(0, len(chunk), rows):
            yield chunk[start : start + rows]


def _grown(values: np.ndarray, used: int, room: int) -> np.ndarray:
    grown = np.empty(room, values.dtype)
    grown[:used] = values[:used]
    return grown


@compiled
def _gather(terms, lengths, place, counts, sizes):
    """Move each text's distinct terms to the front, in place, and count them; return their number.

    terms: int32 (tokens,), STOPPED for a stop word. lengths: int64 (texts,), which loses the stop words. place: int32
    (terms known,), -1 all. counts: int32 (tokens,), out. sizes: int32 (texts,), out: distinct terms of each text.
    """
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
