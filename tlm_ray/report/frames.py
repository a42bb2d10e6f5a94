"""Results, sweeps and learning curves as pandas' data frames, numbers in full precision."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tlm_ray.report.formats import interval_of
from tlm_ray.report.story import Learned
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.results import ResultsData

if TYPE_CHECKING:
    import pandas as pd

SCORES = ("score", "std", "low", "high")
COSTS = ("flops", "data_bytes", "wall_s")


def results_frame(results: ResultsData) -> "pd.DataFrame":
    """Return a row per row of the table and, for each task, columns with the numbers of the cell.

    score: mean over seeds, in percent. std: sample standard deviation. low, high: 95 % confidence interval of the mean
    over seeds, by Student's t. seeds: their number. flops, data_bytes, wall_s: see `Cell`. std, low and high are NaN
    for one seed, and all are NaN for a row that lacks the task.
    """
    import pandas as pd  # imported here, because it takes 0.4 s

    rows = {row: results.of_row(row) for row in results.rows}
    columns = {
        (task, name): [_number(own.get(task), name) for own in rows.values()]
        for task in results.tasks
        for name in (*SCORES, "seeds", *COSTS)
    }
    index = pd.Index(rows, name="row", dtype=object)
    names = pd.MultiIndex.from_tuples(columns, names=["task", "number"])
    return pd.DataFrame(dict(enumerate(columns.values())), index=index).set_axis(names, axis="columns")


def _number(cell: Cell | None, name: str) -> float:
    """Return one of a cell's numbers, NaN if it is unknown."""
    if cell is None:
        return math.nan
    if name in COSTS:
        return float(getattr(cell, name))
    low, high = interval_of(cell.scores) or (math.nan, math.nan)
    seeds = len(cell.scores)
    std = cell.std if seeds > 1 else math.nan
    return {"score": cell.mean, "std": std, "low": low, "high": high, "seeds": seeds}[name]


def sweep_frame(ordered: Sequence[Mapping[str, Any]]) -> "pd.DataFrame":
    """Return a row per trial, best first: its parameters, dev score in percent, and whatever else is known of it."""
    import pandas as pd

    return pd.DataFrame(list(ordered))


def learning_frame(learned: Sequence[Learned]) -> "pd.DataFrame":
    """Return a row per logged entry: the stage, the step, its losses and, where it was scored, the dev score."""
    import pandas as pd

    return pd.DataFrame([{"stage": each.stage} | dict(entry) for each in learned for entry in each.history])
