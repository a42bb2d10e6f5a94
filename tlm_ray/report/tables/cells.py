"""Cells of a results table: a recipe (row) on a task (column), over its seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tlm_ray.evaluation.scores import METRICS
from tlm_ray.report.formats import spread_of

SPLITS = ("test", "dev")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The scores and costs of one row on one task.

    ValueError for a score outside its metric's range. A metric of one's own has the range that `score` checked, so here
    its scores need only be finite and at most 100.
    """

    row: str
    """the table's row"""
    task: str
    """the task's short name, a column"""
    metric: str
    """name of the metric"""
    scores: tuple[float, ...]
    """scores on the split, one per seed, in percent"""
    flops: float
    """6 x tokens x parameters over both stages, mean over seeds"""
    data_bytes: int
    """bytes of training text, general and task together"""
    wall_s: float
    """seconds of both stages, those of a student's teachers included, mean over seeds"""
    split: str = "test"
    """split of the scores: test or dev"""
    dev_scores: tuple[float, ...] = ()
    """with test scores: dev scores of the same seeds"""
    parts: tuple[float, ...] = ()
    """for a metric that is the mean of two: both, mean over seeds, in percent"""
    x: float | None = None
    """the varied number of the experiment; None for a row without one"""
    flops_counted: float = 0.0
    """operations of all matrix products, padding included; 0 if unknown"""
    pretrained: bool = False
    """training started from a pretrained encoder, whose cost these numbers exclude"""
    pretraining_flops: float = 0.0
    """that cost as published; 0 if unknown"""
    members: str = ""
    """the row whose runs an ensemble combines; "" for own runs"""

    def __post_init__(self) -> None:
        if not self.scores or len(self.dev_scores) not in (0, len(self.scores)):
            raise ValueError(
                f"{self._name}: {len(self.scores)} scores and {len(self.dev_scores)} dev_scores; "
                "give one of each per seed, and at least one"
            )
        if self.split not in SPLITS:
            raise ValueError(f"{self._name}: split {self.split!r}; allowed are {', '.join(SPLITS)}")
        lowest = METRICS[self.metric].lowest if self.metric in METRICS else -math.inf
        for score in (*self.scores, *self.dev_scores):
            if not (math.isfinite(score) and lowest <= score <= 100.0):
                allowed = f"{lowest:g} to 100" if self.metric in METRICS else "a finite number up to 100"
                raise ValueError(f"{self._name}: score {score}; give percent, {allowed}")
        for field in ("flops", "data_bytes", "wall_s", "flops_counted", "pretraining_flops"):
            value = getattr(self, field)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{self._name}: {field} is {value}; give a finite amount, 0 or more")

    @property
    def _name(self) -> str:
        return f"cell {self.row!r} on {self.task!r}"

    @property
    def mean(self) -> float:
        """Mean score over seeds, in percent."""
        return fmean(self.scores)

    @property
    def dev(self) -> float:
        """Mean score on dev over seeds, in percent; minus infinity, below all, if there is none."""
        return fmean(self.scores if self.split == "dev" else self.dev_scores or (-math.inf,))

    @property
    def std(self) -> float:
        """Sample standard deviation of the scores over seeds (see `formats.spread_of`)."""
        return spread_of(self.scores)


def check_cells(cells: Sequence[Cell]) -> None:
    """Raise ValueError unless the cells make a table: not empty, no duplicates, one split, one metric per task."""
    if not cells:
        raise ValueError("cells: empty; give at least one cell")
    if len(splits := {cell.split for cell in cells}) > 1:
        raise ValueError(f"cells of {' and '.join(sorted(splits))}: a table has one split; choose one")
    metrics: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.row, cell.task) in seen:
            raise ValueError(f"{cell._name} occurs twice; put its seeds into one cell's scores")
        seen.add((cell.row, cell.task))
        metric = metrics.setdefault(cell.task, cell.metric)
        if cell.metric != metric:
            raise ValueError(
                f"{cell._name} has metric {cell.metric!r}, but the task's first cell has {metric!r}; "
                "a column must have one metric"
            )
