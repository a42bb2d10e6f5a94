"""Fit linear models (scikit-learn), each with the settings to try; all reduce to weights and a bias."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

ITERATIONS = 2_000  # of L-BFGS; the weakest regularisation on 25,000 long texts takes 300
ROUNDS = 10_000  # of liblinear; a strength of 3 takes some hundreds


class Fitted(NamedTuple):
    """A linear model."""

    weights: np.ndarray
    """(columns, terms); one column for two classes and for a number"""
    bias: np.ndarray
    """(columns,)"""

    def scores(self, rows: Any, *, is_number: bool) -> np.ndarray:
        """Return the scores of rows, float64 (rows, classes), 0 for the first of two classes; or numbers, (rows, 1)."""
        found = rows @ self.weights.T + self.bias
        return found if is_number or found.shape[1] > 1 else np.hstack([np.zeros_like(found), found])


@dataclass(frozen=True, kw_only=True)
class Learner(ABC):
    """A way to fit a linear model; derive from it to add your own."""

    name: ClassVar[str]
    strengths: tuple[float, ...]
    """values of C to try, the inverse of the regularisation"""

    @abstractmethod
    def fit(self, rows: Any, labels: np.ndarray, *, strength: float, weights: str) -> Fitted:
        """Fit rows, a sparse matrix (rows, terms), with a strength and class weights, none or balanced."""


@dataclass(frozen=True, kw_only=True)
class Logistic(Learner):
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic regression"
    strengths: tuple[float, ...] = (1.0, 10.0, 100.0)

    def fit(self, rows: Any, labels: np.ndarray, *, strength: float, weights: str) -> Fitted:
        """Fit by L-BFGS."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=strength, max_iter=ITERATIONS, class_weight=_weights(weights))
        return fitted_of(model.fit(rows, labels))


@dataclass(frozen=True, kw_only=True)
class Svm(Learner):
    """A linear support vector machine with squared hinge loss, one against the rest for several classes."""

    name: ClassVar[str] = "linear SVM"
    strengths: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

    def fit(self, rows: Any, labels: np.ndarray, *, strength: float, weights: str) -> Fitted:
        """Fit by liblinear, with a fixed seed."""
        from sklearn.svm import LinearSVC

        options: dict[str, Any] = {"dual": "auto", "max_iter": ROUNDS, "random_state": 0}
        return fitted_of(LinearSVC(C=strength, class_weight=_weights(weights), **options).fit(rows, labels))


@dataclass(frozen=True, kw_only=True)
class NbSvm(Learner):
    """NBSVM: a linear SVM on terms weighted by naive Bayes' log ratio (Wang and Manning 2012)."""

    name: ClassVar[str] = "NB-SVM"
    strengths: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

    def fit(self, rows: Any, labels: np.ndarray, *, strength: float, weights: str) -> Fitted:
        """Fit class by class; only the second of two classes."""
        classes = np.unique(labels)
        fits = [
            self._against_rest(rows, labels == label, strength, weights)
            for label in (classes if len(classes) > 2 else classes[1:])
        ]
        return Fitted(*(np.concatenate(each) for each in zip(*fits, strict=True)))

    def _against_rest(self, rows: Any, is_class: np.ndarray, strength: float, weights: str) -> Fitted:
        from scipy import sparse

        counts = [(rows[which] > 0).sum(axis=0) + 1.0 for which in (is_class, ~is_class)]
        own, rest = (np.asarray(count).ravel() / count.sum() for count in counts)
        ratio = np.log(own / rest)
        found = Svm().fit(rows @ sparse.diags(ratio), is_class, strength=strength, weights=weights)
        return Fitted(found.weights * ratio, found.bias)


@dataclass(frozen=True, kw_only=True)
class Ridge(Learner):
    """Ridge regression, for numbers; it has no class weights."""

    name: ClassVar[str] = "ridge regression"
    strengths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

    def fit(self, rows: Any, labels: np.ndarray, *, strength: float, weights: str) -> Fitted:
        """Fit numbers."""
        from sklearn import linear_model

        return fitted_of(linear_model.Ridge(alpha=1 / strength).fit(rows, labels))


def _weights(name: str) -> str | None:
    return None if name == "none" else name


def fitted_of(model: Any) -> Fitted:
    """Return the weights and bias of a linear model of scikit-learn."""
    return Fitted(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))
