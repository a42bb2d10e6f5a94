"""The trainings of one cell of a table, which differ by their seeds; and what they say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from tlm_ray.corpus.predictions import decide, read_predictions, together
from tlm_ray.corpus.scores import Metric, score
from tlm_ray.report import Cell, Predictions


@dataclass(frozen=True, kw_only=True)
class Group:
    """The trainings of one row on one task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    metric: str | Metric
    facts: Sequence[Mapping[str, Any]]
    """of each training, see `Outcome.facts`"""
    folders: Sequence[str]
    """of their metrics stages, which keep what was predicted"""
    is_drawn: bool
    """they depend on their seeds"""
    pretrained: bool
    """they began with a pretrained encoder"""

    def cell(self) -> Cell:
        """Return the table's cell, costs as means over seeds."""
        return Cell(
            row=self.row,
            task=self.task,
            metric=self.facts[0]["metric"],
            scores=tuple(own["test"] for own in self.facts),
            dev_scores=tuple(own["dev"] for own in self.facts),
            flops=fmean(own["flops"] for own in self.facts),
            flops_counted=fmean(own["flops_counted"] for own in self.facts),
            data_bytes=round(fmean(own["data_bytes"] for own in self.facts)),
            wall_s=fmean(own["seconds"] for own in self.facts),
            pretrained=self.pretrained,
        )

    def predictions(self) -> Predictions:
        """Return what each training predicts of the test set."""
        read = [read_predictions(folder, "test") for folder in self.folders]
        return Predictions(
            row=self.row,
            task=self.task,
            metric=self.metric,
            gold=read[0].gold,
            predicted=np.array([each.predicted for each in read]),
            is_drawn=self.is_drawn,
        )


class Ensemble(Group):
    """What two or more trainings predict together: the class of the highest mean probability, or the mean number."""

    def cell(self) -> Cell:
        """Return the table's cell; it costs what all of its trainings cost."""
        members, count = super().cell(), len(self.facts)
        return replace(
            members,
            row=self._name,
            scores=(self._score("test"),),
            dev_scores=(self._score("dev"),),
            flops=count * members.flops,
            flops_counted=count * members.flops_counted,
            wall_s=count * members.wall_s,
        )

    def predictions(self) -> Predictions:
        """Return what all trainings predict of the test set together, and all but each."""
        gold, logits = self._logits("test")
        others = [np.delete(logits, member, axis=0) for member in range(len(logits))]
        return Predictions(
            row=self._name,
            task=self.task,
            metric=self.metric,
            gold=gold,
            predicted=decide(together(logits))[None],
            members=self.row,
            without=np.array([decide(together(each)) for each in others]),
        )

    @property
    def _name(self) -> str:
        return f"{self.row}, mean of {len(self.facts)} seeds"

    def _score(self, split: str) -> float:
        gold, logits = self._logits(split)
        return score(self.metric, gold, decide(together(logits)))

    def _logits(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return gold labels, (rows,), and each training's logits, (trainings, rows, classes)."""
        read = [read_predictions(folder, split) for folder in self.folders]
        return read[0].gold, np.array([each.logits for each in read])
