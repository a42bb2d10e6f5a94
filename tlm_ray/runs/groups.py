"""Group the trainings of one table cell, which differ by seed, and their ensembles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from tlm_ray.corpus.labelled.text_groups import read_text_groups
from tlm_ray.evaluation.pooling import best_share, pooled
from tlm_ray.evaluation.predictions import Predicted, decide, has_predictions, read_predictions, shares
from tlm_ray.evaluation.scores import OF_PAIRS, Metric, score
from tlm_ray.plain import FrozenEncoder, PlainClassifier
from tlm_ray.report import Cell, Predictions, pretraining_flops
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.starts import Pretrained


@dataclass(frozen=True, kw_only=True)
class Group:
    """The trainings of one row on one task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    metric: str | Metric
    facts: Sequence[Mapping[str, Any]]
    """facts of each training, see `Outcome.facts`"""
    folders: Sequence[str]
    """folders of their metrics stages, which hold the predictions"""
    task_folder: str
    """folder of the task's stage, which holds the texts"""
    recipe: Recipe | PlainClassifier
    """their recipe"""
    taught_by: Recipe | None = None
    """the recipe of a student's teachers, if it is another"""

    def cell(self, split: str = "test") -> Cell:
        """Return the table cell of a split, with costs as means over seeds."""
        return Cell(
            row=self.row,
            task=self.task,
            metric=self.facts[0]["metric"],
            split=split,
            scores=self._scores(split),
            dev_scores=self._scores("dev") if split == "test" else (),
            flops=fmean(own["flops"] for own in self.facts),
            flops_counted=fmean(own["flops_counted"] for own in self.facts),
            data_bytes=round(fmean(own["data_bytes"] for own in self.facts)),
            wall_s=fmean(own["seconds"] + own["seconds_taught"] for own in self.facts),
            parts=self._parts(split),
            pretrained=bool(self._pretrained),
            pretraining_flops=pretraining_flops(self._pretrained),
        )

    def _scores(self, split: str) -> tuple[float, ...]:
        scores = tuple(own[split] for own in self.facts)
        if isinstance(self.metric, Metric) and split == "test":
            self._check_recorded(self.metric, scores)
        return scores

    def _check_recorded(self, metric: Metric, scores: Sequence[float]) -> None:
        """Raise ValueError if a metric of one's own scores otherwise than when its scores were recorded."""
        found = self.predictions()
        now = [score(metric, found.gold, run) for run in found.predicted]
        if not np.allclose(now, scores):
            raise ValueError(
                f"metric {metric.name!r}: gives {now[0]:.2f} for {self.row}, {scores[0]:.2f} was recorded; raise its "
                "version, so that models are scored again"
            )

    def _parts(self, split: str) -> tuple[float, ...]:
        """Return the means over runs of both metrics, if the metric is the mean of two."""
        pair = OF_PAIRS.get(self.facts[0]["metric"], ())
        found = self.predictions(split) if pair else None
        return tuple(fmean(score(part, found.gold, run) for run in found.predicted) for part in pair) if found else ()

    @property
    def short(self) -> str:
        """Short name in ensembles with encoders; "" if it cannot join one."""
        return self.recipe.short if isinstance(self.recipe, PlainClassifier) else ""

    @property
    def _pretrained(self) -> str:
        """The pretrained encoder that they or teachers of another recipe started from; "" if none."""
        if isinstance(self.recipe, FrozenEncoder):
            return self.recipe.source
        starts = [one.start for one in (self.recipe, self.taught_by) if isinstance(one, Recipe)]
        return next((start.source for start in starts if isinstance(start, Pretrained)), "")

    def predictions(self, split: str = "test") -> Predictions:
        """Return each training's predictions of a split."""
        read = self.read(split)
        return Predictions(
            row=self.row,
            task=self.task,
            metric=self.metric,
            gold=read[0].gold,
            predicted=np.array([each.predicted for each in read]),
            groups=self._rows_together(split),
            is_drawn=isinstance(self.recipe, Recipe),
        )

    def _rows_together(self, split: str) -> np.ndarray:
        return _text_groups(self.task_folder, split)

    def read(self, split: str) -> list[Predicted]:
        """Read each training's predictions of a split."""
        return [read_predictions(folder, split) for folder in self.folders]

    @property
    def name(self) -> str:
        """The name of its row in the table."""
        return self.row

    @property
    def dev_scores(self) -> tuple[float, ...]:
        """Dev scores in percent, one per run."""
        return self._scores("dev")

    def gives_probabilities(self, split: str) -> bool:
        """Return whether it has predictions of a split that are probabilities of classes."""
        if not (isinstance(self.recipe, Recipe) or self.short):
            return False
        return all(has_predictions(folder, split) for folder in self.folders) and (
            self.read(split)[0].logits.shape[1] > 1
        )

    def probabilities(self, split: str) -> tuple[np.ndarray, np.ndarray, str]:
        """Return gold classes (rows,), probabilities (rows, classes), and which of several runs they are of."""
        best = int(np.argmax(self.dev_scores))
        found = self.read(split)[best]
        return found.gold, shares(found.logits), _which(self.dev_scores)


def _which(runs: Sequence[float]) -> str:
    return f"the best on dev of {len(runs)} trainings" if len(runs) > 1 else ""


WITH_LINEAR = " with linear model"  # in the names of ensembles that have one


def name_of_mean(row: str, seeds: int, *, with_linear: bool) -> str:
    """Return the name of a row's ensemble of so many seeds."""
    return f"{row}{f', mean of {seeds} seeds' * (seeds > 1)}{WITH_LINEAR * with_linear}"


def names_of_means(row: str, seeds: int, *, with_linear: bool) -> list[str]:
    """Return the names of all ensembles that a row of so many seeds has."""
    sizes, beside = sorted({1, seeds}), sorted({False, with_linear})
    return [name_of_mean(row, size, with_linear=one) for one in beside for size in sizes if one or size > 1]


@cache
def _text_groups(folder: str, split: str) -> np.ndarray:
    """Read a split's groups, once per process: all rows of a table share them, and a stage's folder does not change."""
    return read_text_groups(folder, split)


class Said(NamedTuple):
    """The outputs of trainings, and optionally of a linear model, on a split: probabilities or numbers."""

    gold: np.ndarray
    """(rows,)"""
    own: np.ndarray
    """(seeds, rows, classes)"""
    beside: np.ndarray | None
    """(rows, classes)"""


@dataclass(frozen=True, kw_only=True)
class Mean(Group):
    """An ensemble of a group's trainings, with or without a linear model; it trains nothing.

    Seeds are averaged by probabilities or numbers. A linear model is mixed in with a weight tuned on dev
    (`tlm_ray.evaluation.pooling`).
    """

    of_seeds: bool
    """average all seeds, else keep each separate"""
    beside: Group | None = None
    """the linear model's run"""

    def cell(self, split: str = "test") -> Cell:
        """Return the table cell, with the costs of all members."""
        own, times = super().cell(split), len(self.facts) if self.of_seeds else 1
        further = (times - 1) * fmean(facts["seconds"] for facts in self.facts)  # students' seeds share their teachers
        beside = self.beside.cell().wall_s if self.beside else 0.0
        return replace(
            own,
            row=self.name,
            members=self.row,
            flops=times * own.flops,
            flops_counted=times * own.flops_counted,
            wall_s=own.wall_s + further + beside,
        )

    def predictions(self, split: str = "test") -> Predictions:
        """Return the predictions of a split and, for averaged seeds, the leave-one-out predictions."""
        seeds = np.arange(len(self.facts))
        others = [np.delete(seeds, seed) for seed in seeds] if self.of_seeds else []
        return Predictions(
            row=self.name,
            task=self.task,
            metric=self.metric,
            gold=self._said[split].gold,
            predicted=self._predicted(self._runs, split),
            groups=self._rows_together(split),
            members=self.row,
            without=self._predicted(others, split) if others else None,
        )

    def probabilities(self, split: str) -> tuple[np.ndarray, np.ndarray, str]:
        """Return gold classes (rows,), probabilities (rows, classes), and which of several runs they are of."""
        best = int(np.argmax(self.dev_scores))
        return self._said[split].gold, self._together(self._runs[best], split), _which(self.dev_scores)

    @property
    def encoders_share(self) -> float:
        """The weight of the averaged seeds beside the linear model."""
        return self._share(np.arange(len(self.facts)))

    @property
    def name(self) -> str:
        """The name of its row in the table."""
        return name_of_mean(self.row, len(self.facts) if self.of_seeds else 1, with_linear=bool(self.beside))

    @property
    def _runs(self) -> list[np.ndarray]:
        """The seeds of each run."""
        seeds = np.arange(len(self.facts))
        return [seeds] if self.of_seeds else list(seeds[:, None])

    def _scores(self, split: str) -> tuple[float, ...]:
        gold = self._said[split].gold
        return tuple(score(self.metric, gold, predicted) for predicted in self._predicted(self._runs, split))

    def _predicted(self, runs: Sequence[np.ndarray], split: str) -> np.ndarray:
        """Return the averaged predictions of each run's seeds, (runs, rows)."""
        return np.array([decide(self._together(seeds, split)) for seeds in runs])

    def _together(self, seeds: np.ndarray, split: str) -> np.ndarray:
        """Return the probabilities or numbers of some seeds and the linear model, (rows, classes)."""
        said = self._said[split]
        own = said.own[seeds].mean(axis=0)
        return own if said.beside is None else pooled(own, said.beside, self._share(seeds))

    def _share(self, seeds: np.ndarray) -> float:
        dev = self._said["dev"]
        assert dev.beside is not None, "a weight needs a linear model"
        return best_share(dev.gold, dev.own[seeds].mean(axis=0), dev.beside)

    @cached_property
    def _said(self) -> dict[str, Said]:
        return {split: self._read(split) for split in ("dev", "test")}

    def _read(self, split: str) -> Said:
        read = self.read(split)
        beside = None if self.beside is None else shares(self.beside.read(split)[0].logits)
        return Said(read[0].gold, shares(np.array([each.logits for each in read])), beside)
