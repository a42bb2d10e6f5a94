"""Classify by the nearest training texts (BM25), with this package's retrieval engine."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import decide
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.plain.classifier import PlainClassifier, Predicted
from tlm_ray.retrieval import TopK, index_passages, search

PRIOR = 1e-6  # the weight of all training rows together, as a fallback and to break ties


@dataclass(frozen=True, kw_only=True)
class Bm25Neighbours(PlainClassifier):
    """BM25 k-nearest neighbours: a vote weighted by scores, with k chosen on dev.

    A regression takes the weighted mean.
    """

    name: ClassVar[str] = "BM25 neighbours"
    sizes: tuple[int, ...] = (1, 3, 5, 10, 20, 50, 100)
    """values of k to try"""

    def predict(self, task: Task, metric: str | Metric) -> Predicted:
        """Search the training texts with the texts of dev and test."""
        index, labels = index_passages(task.train_texts), task.splits["train"]["label"].to_numpy()
        votes = np.eye(len(task.labels))[labels] if task.labels else np.stack([labels, np.ones(len(labels))], axis=1)
        found = {split: search(index, task.texts(split), k=max(self.sizes)) for split in ("dev", "test")}

        def logits(split: str, size: int) -> np.ndarray:
            sums = _sums(found[split], votes, size)
            return sums if task.labels else sums[:, :1] / sums[:, 1:]

        gold = task.splits["dev"]["label"].to_numpy()
        scores = [score(metric, gold, decide(logits("dev", size))) for size in self.sizes]
        size = self.sizes[int(np.argmax(scores))]
        return Predicted({split: logits(split, size) for split in found}, {"neighbours": size})


def _sums(found: TopK, votes: np.ndarray, size: int) -> np.ndarray:
    """Return the votes of the nearest `size` training rows, weighted by their scores, (queries, columns of votes)."""
    weights = np.where(found.ids[:, :size] >= 0, found.scores[:, :size], 0.0)
    return np.einsum("qk,qkc->qc", weights, votes[found.ids[:, :size]]) + PRIOR * votes.mean(axis=0)
