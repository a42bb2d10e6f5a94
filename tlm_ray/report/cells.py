"""One cell of a results table: a recipe (row) on a task (column), over its seeds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tlm_ray.report.paper import ReportedRow, reported


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one row reached on one task, and what that cost.

    `scores` and `dev_scores` hold one number a seed, in percent, in the same order of seeds;
    `flops` (6 x tokens x parameters) and `wall_s` (seconds) are means over seeds and cover both
    stages; `data_bytes` is the text trained on, general and task together. `flops_counted` are the
    operations of all matrix products, padding included, or 0 where they are not known.
    Raises ValueError for a score outside [0, 100] ([-100, 100] for "matthews").
    """

    row: str
    task: str
    metric: str
    scores: tuple[float, ...]
    dev_scores: tuple[float, ...]
    flops: float
    data_bytes: int
    wall_s: float
    flops_counted: float = 0.0

    def __post_init__(self) -> None:
        if not self.scores or len(self.scores) != len(self.dev_scores):
            raise ValueError(
                f"{self._name}: {len(self.scores)} scores and {len(self.dev_scores)} dev_scores; "
                "give one of each a seed, and at least one"
            )
        lowest = -100.0 if self.metric in ("matthews", "pearson_spearman") else 0.0
        for score in (*self.scores, *self.dev_scores):
            if not lowest <= score <= 100.0:
                raise ValueError(f"{self._name}: score {score}; give percent, {lowest:g} to 100")
        for field in ("flops", "data_bytes", "wall_s", "flops_counted"):
            value = getattr(self, field)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{self._name}: {field} is {value}; give a finite amount, 0 or more")

    @property
    def _name(self) -> str:
        return f"cell {self.row!r} on {self.task!r}"

    @property
    def mean(self) -> float:
        """Mean test score over seeds, in percent."""
        return statistics.fmean(self.scores)

    @property
    def std(self) -> float:
        """Sample standard deviation (divisor n - 1) of the test scores; 0.0 for a single seed.

        The paper does not say which divisor it used. Seeds are a sample of the runs one could
        make, so n - 1; with three seeds it is 1.22 times what divisor n gives.
        """
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0


def check_cells(cells: Sequence[Cell]) -> None:
    """Raise ValueError unless the cells make one table: some, no duplicates, one metric a task."""
    if not cells:
        raise ValueError("cells is empty; a table needs at least one cell")
    metrics: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.row, cell.task) in seen:
            raise ValueError(f"{cell._name} occurs twice; put its seeds into one cell's scores")
        seen.add((cell.row, cell.task))
        metric = metrics.setdefault(cell.task, cell.metric)
        if cell.metric != metric:
            raise ValueError(
                f"{cell._name} has metric {cell.metric!r}, but the task's first has {metric!r}; "
                "scores of one column must be of one metric"
            )


def names(cells: Sequence[Cell], field: str) -> list[str]:
    """Return the values of "row" or "task" in order of first appearance."""
    return list(dict.fromkeys(getattr(cell, field) for cell in cells))


def metric_of(cells: Sequence[Cell], task: str) -> str:
    """Return the metric of a task's column."""
    return next(cell.metric for cell in cells if cell.task == task)


def reported_for(cells: Sequence[Cell], task: str) -> list[ReportedRow]:
    """Return the paper's rows for a column; [] where it has no such task or another metric."""
    metric = metric_of(cells, task)
    return [row for row in reported(task) if row.metric == metric]
