"""Fit logistic regression (scikit-learn) on the embeddings of a frozen encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import decide
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.plain.classifier import PlainClassifier, Predicted
from tlm_ray.plain.learners import Fitted, fitted_of
from tlm_ray.storage.digests import identity_of

ITERATIONS = 10_000  # of L-BFGS
TOLERANCE = 1e-6  # with 1e-4 a warm-started fit ended at once, so C = 100 equalled C = 30
WEIGHTS = (None, "balanced")  # class weights: by rows, or equal for all classes


@dataclass(frozen=True, kw_only=True)
class FrozenEncoder(PlainClassifier):
    """Logistic regression (ridge for a regression task) on mean-pooled embeddings, its settings chosen on dev.

    Both sides of a pair are one text. Of settings equal on dev the first is used, the most regularised.
    """

    name: ClassVar[str] = "frozen encoder + logistic regression"
    source: str
    """hub name or local folder of the encoder, with safetensors weights"""
    strengths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    """values of C to try, the inverse of the regularisation"""

    @property
    def identity(self) -> dict[str, Any]:
        """The settings, with digests instead of the location of a local encoder."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"type": type(self).__name__, **own, "source": identity_of(self.source)}

    def predict(self, task: Task, metric: str | Metric) -> Predicted:
        """Embed all texts, fit every combination of settings on the training rows, predict with the best on dev."""
        vectors = dict(zip(("train", "dev", "test"), self._embedded(task), strict=True))
        train, dev = (task.splits[split]["label"].to_numpy() for split in ("train", "dev"))
        best, predicted = -np.inf, None
        for chosen, model in self._fitted(vectors["train"], train, is_regression=not task.labels):
            logits = {split: model.scores(vectors[split], is_number=not task.labels) for split in ("dev", "test")}
            found = score(metric, dev, decide(logits["dev"]))
            if found > best:
                best, predicted = found, Predicted(logits, chosen)
        if predicted is None:
            raise ValueError("FrozenEncoder: give strengths to try, and a metric that is a number")
        return predicted

    def _embedded(self, task: Task) -> Iterator[np.ndarray]:
        """Yield the embeddings of each split, float32 (rows, width)."""
        from tlm_ray.retrieval.methods.embedding import Encoder

        encoder = Encoder(self.source)
        for split in ("train", "dev", "test"):
            yield _embed(encoder, task.texts(split))

    def _fitted(
        self, rows: np.ndarray, labels: np.ndarray, *, is_regression: bool
    ) -> Iterator[tuple[dict[str, Any], Fitted]]:
        """Yield each setting and its model, warm-started from the one before."""
        from sklearn.linear_model import LogisticRegression, Ridge

        if is_regression:
            for strength in self.strengths:
                yield {"C": strength}, fitted_of(Ridge(alpha=1 / strength).fit(rows, labels))
            return
        for weights in WEIGHTS:
            model = LogisticRegression(max_iter=ITERATIONS, tol=TOLERANCE, warm_start=True, class_weight=weights)
            for strength in self.strengths:
                model.set_params(C=strength).fit(rows, labels)
                yield {"C": strength, "weights": weights or "none"}, fitted_of(model)


def _embed(encoder: Any, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings of texts in their order; texts of similar length share a batch, to avoid padding."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    found = np.concatenate([some.cpu().numpy() for some in encoder.embed([texts[place] for place in order])])
    return found[np.argsort(order)]
