"""Vary the rows per step, on development scores.

    python experiments/batch_rows.py                                                     # embedded data
    python experiments/batch_rows.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/batch_rows.py --batch-rows 16 8 --dry-run

All rows of the table train on as many rows of text, in both stages: half the rows per step mean twice the steps.
They share one retrieval and one tokenizer, and have the recipe's learning rates.

Expected before running: fewer rows per step, and so more steps, above the recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.training.loop.schedules import Schedule

PLAIN = "recipe"


@dataclass(frozen=True, kw_only=True)
class BatchRows(Table):
    """Options of the table of rows per step."""

    name = "batch_rows"

    batch_rows: list[int] = field(default_factory=lambda: [16, 8])
    """rows per step of both stages, a row of the table each, beside the recipe's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.batch_rows or min(self.batch_rows) < 1 or len(set(self.batch_rows)) < len(self.batch_rows):
            given = " ".join(map(str, self.batch_rows))
            raise ValueError(f"--batch-rows {given}: give one or more whole numbers from 1 on, each once")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return the recipe, then one per number of rows."""
        one, two = recipe.stage_one, recipe.stage_two
        return {PLAIN: recipe} | {
            f"{rows} rows per step": replace(recipe, stage_one=one and _of(one, rows), stage_two=_of(two, rows))
            for rows in self.batch_rows
        }

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect fewer rows per step above the recipe."""
        return [(row, PLAIN) for row in rows if row != PLAIN]

    def against(self, rows: list[str]) -> str:
        """Return the recipe as it is."""
        return PLAIN


def _of(schedule: Schedule, rows: int) -> Schedule:
    return replace(schedule.cut_to(schedule.batch_rows / rows), batch_rows=rows)


if __name__ == "__main__":
    main(BatchRows, __doc__, ray.init)
