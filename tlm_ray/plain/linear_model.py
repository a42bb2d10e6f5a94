"""A linear model on TF-IDF of words: fitted by scikit-learn, kept as Arrow and JSON, opened without pickle."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tlm_ray import storage
from tlm_ray.retrieval.engine import analyzer

TERMS, FACTS = "terms.arrow", "linear.json"
COLUMNS = ["term", "idf", "weights"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Says of texts what a fitted vectorizer and a linear model of scikit-learn say."""

    terms: list[str]
    idf: np.ndarray
    """(terms,)"""
    weights: np.ndarray
    """(columns, terms); one column for two classes and for a number"""
    bias: np.ndarray
    """(columns,)"""
    ngrams: int
    """longest runs of words among the terms"""
    labels: tuple[str, ...]
    """of the classes, in their order; none where a number is predicted"""
    encoders_share: float | None = None
    """of the encoders that it predicts together with (`tlm_ray.corpus.pooling`); None where there are none"""

    @classmethod
    def of(cls, vectorizer: Any, model: Any, *, ngrams: int, labels: tuple[str, ...]) -> "LinearModel":
        """Take what was fitted: a TfidfVectorizer with sublinear counts, and a LogisticRegression or a Ridge."""
        return cls(
            terms=vectorizer.get_feature_names_out().tolist(),
            idf=vectorizer.idf_,
            weights=np.atleast_2d(model.coef_),
            bias=np.atleast_1d(model.intercept_),
            ngrams=ngrams,
            labels=labels,
        )

    def logits(self, texts: list[str]) -> np.ndarray:
        """Return the scores of texts, float64 (texts, classes), or numbers, (texts, 1)."""
        found = self._vectorizer.transform(texts) @ self.weights.T + self.bias
        return np.hstack([np.zeros_like(found), found]) if len(self.labels) == 2 else found

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = words(self.ngrams, vocabulary=self.terms)
        vectorizer.idf_ = self.idf
        return vectorizer

    def save(self, folder: str) -> None:
        """Write a folder that `open` reads."""
        weights = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(self.weights.T).ravel(), len(self.weights))
        storage.write_table(storage.join(folder, TERMS), pa.table([self.terms, self.idf, weights], COLUMNS))
        facts: dict[str, Any] = {"bias": self.bias.tolist(), "ngrams": self.ngrams, "labels": list(self.labels)}
        facts |= {} if self.encoders_share is None else {"encoders_share": self.encoders_share}
        storage.write_record(storage.join(folder, FACTS), facts)

    @classmethod
    def open(cls, folder: str) -> "LinearModel":
        """Read what `save` wrote."""
        facts = storage.read_record(storage.join(folder, FACTS))
        table = storage.read_table(storage.join(folder, TERMS)).combine_chunks()
        terms, idf, weights = (table[name].chunk(0) for name in COLUMNS)
        return cls(
            terms=terms.to_pylist(),
            idf=idf.to_numpy(),
            weights=weights.flatten().to_numpy().reshape(len(terms), -1).T,
            bias=np.array(facts["bias"]),
            ngrams=facts["ngrams"],
            labels=tuple(facts["labels"]),
            encoders_share=facts.get("encoders_share"),
        )


def words(ngrams: int, *, vocabulary: list[str] | None = None) -> Any:
    """Return scikit-learn's vectorizer of runs of up to `ngrams` words; counts weigh by their logarithm."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        sublinear_tf=True, ngram_range=(1, ngrams), vocabulary=vocabulary, tokenizer=_words, token_pattern=None
    )


def _words(text: str) -> list[str]:
    """Return what scikit-learn takes for words, of two characters or more, and the same of scripts without spaces."""
    return [word for word in analyzer.words(text) if len(word) > 1]


def is_linear(folder: str) -> bool:
    """Say whether a folder holds a linear model."""
    return storage.exists(storage.join(folder, FACTS))
