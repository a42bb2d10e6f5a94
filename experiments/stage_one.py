"""Vary how stage one is optimised, on development scores.

    python experiments/stage_one.py                                                      # embedded data
    python experiments/stage_one.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/stage_one.py --rows recipe "rate x 4" --dry-run

All rows take equally many steps of equal rows, on one retrieval and one tokenizer. Each changes one setting:

    recipe             the recipe as it is
    rate x 2, x 4      twice and four times the peak learning rate
    short warm-up      over 2 % of the steps instead of 10 %
    decay 0.1, 0.5     weight decay of matrices, instead of 0.01
    averaged           the mean of the weights over the second half of the steps (Izmailov et al. 2018)
    rho2 = 0           no masked language modelling in task batches

Expected before running: averaged weights above the last ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.runs.cli.table import chosen

PLAIN, AVERAGED, NO_MLM = "recipe", "averaged", "rho2 = 0"


@dataclass(frozen=True, kw_only=True)
class StageOne(Table):
    """Options of the table of stage one's settings."""

    name = "stage_one"

    rows: list[str] = field(default_factory=list)
    """rows to train, such as recipe "rate x 4" (default: all)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixture.external_only and (NO_MLM in self.rows or not self.rows):
            raise ValueError(f"--external-only: has no task batches for the row {NO_MLM!r}; choose others by --rows")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return a recipe per change of the schedule, and one without MLM in task batches."""
        one = recipe.stage_one
        if one is None:
            raise ValueError("recipe: has no stage one to vary")
        changes: dict[str, dict[str, Any]] = {
            "rate x 2": {"learning_rate": 2 * one.learning_rate},
            "rate x 4": {"learning_rate": 4 * one.learning_rate},
            "short warm-up": {"warmup_steps": one.steps // 50},
            "decay 0.1": {"weight_decay": 0.1},
            "decay 0.5": {"weight_decay": 0.5},
            AVERAGED: {"averaged": 0.5},
        }
        varied = {row: replace(recipe, stage_one=replace(one, **change)) for row, change in changes.items()}
        return chosen({PLAIN: recipe} | varied | {NO_MLM: replace(recipe, rho2=0.0)}, self.rows)

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect averaged weights above the last ones."""
        return [(AVERAGED, PLAIN)] if {AVERAGED, PLAIN} <= set(rows) else []

    def main_row(self, rows: list[str]) -> str:
        """Return the recipe as it is, or the first row."""
        return PLAIN if PLAIN in rows else rows[0]


if __name__ == "__main__":
    main(StageOne, __doc__, ray.init)
