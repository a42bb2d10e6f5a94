"""Define the protocol of a plain classifier, and store its scores."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import Task, load_task
from tlm_ray.evaluation.predictions import write_predictions
from tlm_ray.evaluation.scores import Metric, score

KEPT = "model"  # folder of the saved model, within a plain classifier's folder


class Kept(Protocol):
    """A fitted model that can be saved."""

    def save(self, folder: str) -> None:
        """Write it into a folder."""


class Predicted(NamedTuple):
    """The predictions of a plain classifier for a task."""

    logits: Mapping[str, np.ndarray]
    """of "dev" and "test", float (rows, classes), logits by class; for a regression (rows, 1), numbers"""
    chosen: Mapping[str, Any]
    """the settings that were chosen"""
    model: Kept | None = None
    """the fitted model, None if nothing is saved"""


@dataclass(frozen=True)
class PlainClassifier(ABC):
    """Learns a task's training rows in seconds; derive from it to add your own.

    version: goes up when predictions change.
    """

    name: ClassVar[str]
    """name of its row in a table"""
    short: ClassVar[str] = ""
    """short name in ensembles with encoders; "" if its logits are not log odds, which excludes it"""
    version: ClassVar[int] = 1

    @property
    def identity(self) -> Any:
        """The settings that identify its result besides the task; all of them by default."""
        return self

    def suits(self, texts: Sequence[str]) -> bool:
        """Return whether a task with these training texts gets the row; [] if the texts do not exist yet."""
        return True

    @abstractmethod
    def predict(self, task: Task, metric: str | Metric) -> Predicted:
        """Learn the training rows, choose settings by `metric` without the test rows, predict dev and test."""


def write_scores(folder: str, task: str, classifier: PlainClassifier, *, metric: str | Metric) -> dict[str, Any]:
    """Score a plain classifier on dev and test, and keep its predictions beside the gold labels, and its model.

    task: the folder of a task stage. metric: one's own, "" for the task's. Returns dev and test scores in percent, the
    settings chosen and the seconds that it took.
    """
    started, labelled = time.monotonic(), load_task(task)
    scored_by = metric or labelled.metric
    logits, chosen, model = classifier.predict(labelled, scored_by)
    if model is not None:
        model.save(storage.join(folder, KEPT))
    scores: dict[str, Any] = {"metric": labelled.metric, "chosen": dict(chosen)}
    for split, rows in logits.items():
        _check_numbers(rows, classifier.name, split)
        gold = labelled.splits[split]["label"].to_numpy()
        scores[split] = score(scored_by, gold, write_predictions(folder, split, gold, rows))
    return scores | {"seconds": time.monotonic() - started}


def _check_numbers(logits: np.ndarray, name: str, split: str) -> None:
    """Raise ValueError for NaN, which would count as the best class; minus infinity is an impossible class."""
    wrong = int(np.isnan(logits).any(axis=1).sum())
    if wrong:
        raise ValueError(
            f"classifier {name!r}: {wrong:,} of {len(logits):,} rows of {split} have NaN among their logits; have "
            "predict give numbers, -inf for an impossible class"
        )
