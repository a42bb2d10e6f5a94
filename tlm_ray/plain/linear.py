"""TF-IDF and a linear model, by scikit-learn."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tlm_ray.corpus.predictions import decide
from tlm_ray.corpus.scores import Metric, score
from tlm_ray.corpus.tasks import Task
from tlm_ray.plain.classifier import PlainClassifier, Predicted
from tlm_ray.plain.linear_model import LinearModel, words

ITERATIONS = 2_000  # of L-BFGS; the weakest regularisation on 25,000 long texts takes 300


@dataclass(frozen=True, kw_only=True)
class TfIdf(PlainClassifier):
    """Logistic regression (of a regression: ridge) on TF-IDF of words, its settings chosen on dev; ties take the first.

    Both sides of a pair are one text.
    """

    name: ClassVar[str] = "TF-IDF + logistic regression"
    short: ClassVar[str] = "TF-IDF"
    version: ClassVar[int] = 3  # since 2 the model is kept, since 3 scripts without spaces have words
    ngrams: tuple[int, ...] = (1, 2)
    """longest runs of words to try"""
    strengths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    """values of C to try, the inverse of the regularisation"""
    weights: tuple[str, ...] = ("none", "balanced")
    """whether classes count by their rows or alike, both to try"""

    def predict(self, task: Task, metric: str | Metric) -> Predicted:
        """Fit every combination of settings on the training rows; predict with the best on dev."""
        train, dev = (task.splits[split]["label"].to_numpy() for split in ("train", "dev"))
        best, predicted = -np.inf, None
        for longest in self.ngrams:
            vectorizer = words(longest)
            rows = vectorizer.fit_transform(task.train_texts)
            others = {split: vectorizer.transform(task.texts(split)) for split in ("dev", "test")}
            for settings, model in self._fitted(rows, train, is_regression=not task.labels):
                found = score(metric, dev, decide(_logits(model, others["dev"])))
                if found > best:
                    logits = {split: _logits(model, each) for split, each in others.items()}
                    kept = LinearModel.of(vectorizer, model, ngrams=longest, labels=task.labels)
                    best, predicted = found, Predicted(logits, {"ngrams": longest} | settings, kept)
        if predicted is None:
            raise ValueError("TfIdf: give ngrams and strengths to try, and a metric that is a number")
        return predicted

    def _fitted(self, rows: Any, labels: np.ndarray, *, is_regression: bool) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield each setting and its model, which goes on from the one before it."""
        from sklearn.linear_model import LogisticRegression, Ridge

        if is_regression:
            for strength in self.strengths:
                yield {"C": strength}, Ridge(alpha=1 / strength).fit(rows, labels)
            return
        for weights in self.weights:
            model = LogisticRegression(
                max_iter=ITERATIONS, warm_start=True, class_weight=None if weights == "none" else weights
            )
            for strength in self.strengths:
                yield {"C": strength, "weights": weights}, model.set_params(C=strength).fit(rows, labels)


def _logits(model: Any, rows: Any) -> np.ndarray:
    """Return a model's scores, (rows, classes); scikit-learn has one column for two classes."""
    if not hasattr(model, "decision_function"):
        return model.predict(rows)[:, None]
    found = model.decision_function(rows)
    return found if found.ndim == 2 else np.stack([np.zeros_like(found), found], axis=1)
