"""Vary the rows per step, on development scores.

    python experiments/batch_rows.py                                                     # embedded data
    python experiments/batch_rows.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/batch_rows.py --sizes 16 8 --dry-run

All rows of the table train on as many rows of text, in both stages: half the rows per step mean twice the steps.
They share one retrieval and one tokenizer, and have the recipe's learning rates.

Expected before running: fewer rows per step, and so more steps, above the recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.runs.recipes.budget import of_rows

PLAIN = "recipe"


@dataclass(frozen=True, kw_only=True)
class BatchRows(Table):
    """Options of the table of rows per step."""

    name = "batch_rows"

    sizes: list[int] = field(default_factory=list)
    """rows per step of both stages, a row of the table each; default: a half and a quarter of the recipe's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.changes.batch_rows is not None:
            raise ValueError("--batch-rows: is what this experiment varies; give --sizes")
        if self.budget.given and self.budget.minutes is None:
            raise ValueError(f"{self.budget.given}: may change the rows per step; give --steps or --minutes")
        if min(self.sizes, default=1) < 1 or len(set(self.sizes)) < len(self.sizes):
            given = " ".join(map(str, self.sizes))
            raise ValueError(f"--sizes {given}: give whole numbers from 1 on, each once")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return the recipe, then one per number of rows."""
        own = recipe.stage_two.batch_rows
        found = {rows: of_rows(recipe, rows) for rows in self.sizes or [max(1, own // 2), max(1, own // 4)]}
        if same := [rows for rows, other in found.items() if other == recipe]:
            raise ValueError(f"--sizes {same[0]}: is the recipe's own number of rows per step; leave it out")
        return {PLAIN: recipe} | {f"{rows} rows per step": other for rows, other in found.items()}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect fewer rows per step above the recipe."""
        return [(row, PLAIN) for row in rows if row != PLAIN]

    def main_row(self, rows: list[str]) -> str:
        """Return the recipe as it is."""
        return PLAIN


if __name__ == "__main__":
    main(BatchRows, __doc__, ray.init)
