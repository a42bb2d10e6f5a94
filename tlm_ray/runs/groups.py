"""The trainings of one cell of a table, which differ by their seeds; and what they say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from tlm_ray.corpus.predictions import Predicted, decide, read_predictions, shares
from tlm_ray.corpus.scores import Metric, score
from tlm_ray.report import Cell, Predictions, pretraining_flops


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
    pretrained: str = ""
    """the pretrained encoder that they began with, "" for none"""

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
            pretrained=bool(self.pretrained),
            pretraining_flops=pretraining_flops(self.pretrained),
        )

    def predictions(self) -> Predictions:
        """Return what each training predicts of the test set."""
        read = self.read("test")
        return Predictions(
            row=self.row,
            task=self.task,
            metric=self.metric,
            gold=read[0].gold,
            predicted=np.array([each.predicted for each in read]),
            is_drawn=self.is_drawn,
        )

    def read(self, split: str) -> list[Predicted]:
        """Read what each training predicted of a split."""
        return [read_predictions(folder, split) for folder in self.folders]


@dataclass(frozen=True, kw_only=True)
class Mean(Group):
    """What a group's trainings say together with a plain classifier, or all in one, or both; it trains nothing.

    The class of the highest mean probability, or the mean number. A plain classifier counts as much as the trainings.
    """

    of_seeds: bool
    """all seeds as one, else each by itself"""
    beside: Group | None = None
    """the plain classifier's runs"""
    short: str = ""
    """its name"""

    def cell(self) -> Cell:
        """Return the table's cell; it costs what all that it is made of costs."""
        own, times = super().cell(), len(self.facts) if self.of_seeds else 1
        beside = self.beside.cell().wall_s if self.beside else 0.0
        return replace(
            own,
            row=self._name,
            scores=self._scores("test"),
            dev_scores=self._scores("dev"),
            flops=times * own.flops,
            flops_counted=times * own.flops_counted,
            wall_s=times * own.wall_s + beside,
        )

    def predictions(self) -> Predictions:
        """Return what is predicted of the test set, and of all seeds as one also what all but each predict."""
        gold, shares = self._shares("test")
        others = [np.delete(shares, seed, axis=0) for seed in range(len(shares))] if self.of_seeds else []
        return Predictions(
            row=self._name,
            task=self.task,
            metric=self.metric,
            gold=gold,
            predicted=self._said(shares),
            members=self.row,
            without=np.array([self._said(each)[0] for each in others]) if others else None,
        )

    @property
    def _name(self) -> str:
        seeds = f", mean of {len(self.facts)} seeds" if self.of_seeds else ""
        return f"{self.row}{seeds}{f' with {self.short}' if self.beside else ''}"

    def _scores(self, split: str) -> tuple[float, ...]:
        gold, shares = self._shares(split)
        return tuple(score(self.metric, gold, run) for run in self._said(shares))

    def _said(self, shares: np.ndarray) -> np.ndarray:
        """Return what is predicted, (runs, rows): by all seeds as one, or by each."""
        runs = shares.mean(axis=0, keepdims=True) if self.of_seeds else shares
        return np.array([decide(run) for run in runs])

    def _shares(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return gold labels, (rows,), and probabilities, or numbers, (seeds, rows, classes)."""
        read = self.read(split)
        own = shares(np.array([each.logits for each in read]))
        if self.beside is not None:
            own = (own + shares(self.beside.read(split)[0].logits)) / 2
        return read[0].gold, own
