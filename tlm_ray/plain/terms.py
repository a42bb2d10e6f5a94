"""Extract terms of texts for linear models, counted and weighted by scikit-learn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from tlm_ray.corpus.labelled.marks import Marks
from tlm_ray.plain.lexing import plain_words, tokens
from tlm_ray.plain.windowing import windows

Analyze = Callable[[str], list[str]]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One kind of terms, and how they are weighted; the rows of each kind have length 1."""

    kind: str
    """words (with single signs), plain words (two characters or more, no signs), characters (within words) or windows
    (of marked spans)"""
    shortest: int = 1
    """length of the shortest runs of words or characters"""
    longest: int = 1
    """length of the longest runs"""
    least_texts: int = 1
    """minimum number of training texts with a term"""
    weighting: str = "TF-IDF"
    """TF-IDF with the logarithm of counts, or presence only"""
    marks: Marks | None = None
    """of the spans, for windows"""

    @property
    def analyze(self) -> Analyze:
        """The function that extracts the terms of a text."""
        from sklearn.feature_extraction.text import CountVectorizer

        if self.kind == "windows":
            assert self.marks is not None, "windows are of marked spans"
            return partial(windows, marks=self.marks)
        runs: dict[str, Any] = {"ngram_range": (self.shortest, self.longest), "token_pattern": None}
        if self.kind == "characters":
            return CountVectorizer(analyzer="char_wb", **runs).build_analyzer()
        split = {"words": tokens, "plain words": plain_words}[self.kind]
        return CountVectorizer(tokenizer=split, **runs).build_analyzer()


@dataclass(frozen=True, kw_only=True, eq=False)
class Vocabulary:
    """The terms of one kind that training texts have."""

    of: Terms
    terms: list[str]
    idf: np.ndarray
    """(terms,); all 1 for presence"""

    def rows(self, texts: Sequence[str]) -> Any:
        """Return the weights of texts' terms, a sparse matrix (texts, terms)."""
        return self._weigh(self._counter.transform(texts))

    def _weigh(self, counts: Any) -> Any:
        from sklearn.feature_extraction.text import TfidfTransformer

        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = self.idf
        return transformer.transform(counts, copy=False)

    @cached_property
    def _counter(self) -> Any:
        return _counter(self.of, vocabulary=self.terms)


def learn(kind: Terms, texts: Sequence[str]) -> tuple[Vocabulary, Any] | None:
    """Return the terms of training texts and their weights, a sparse matrix (texts, terms); None without terms."""
    from sklearn.feature_extraction.text import TfidfTransformer

    if not any(map(kind.analyze, texts)):
        return None
    counter = _counter(kind)
    counts = counter.fit_transform(texts)
    kept = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]) >= kind.least_texts)
    if not len(kept):
        return None
    counts, names = counts[:, kept], counter.get_feature_names_out()[kept]
    idf = TfidfTransformer().fit(counts).idf_ if kind.weighting == "TF-IDF" else np.ones(len(kept))
    found = Vocabulary(of=kind, terms=names.tolist(), idf=idf)
    return found, found._weigh(counts)


def _counter(kind: Terms, vocabulary: list[str] | None = None) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    is_binary = kind.weighting == "presence"
    return CountVectorizer(analyzer=kind.analyze, vocabulary=vocabulary, binary=is_binary, dtype=np.float64)
