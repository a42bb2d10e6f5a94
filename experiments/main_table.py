"""Main table: TLM against its ablations, as in table 2 and section 4.3 of Yao et al. (2022).

    python experiments/main_table.py                                            # embedded data, a laptop, minutes
    ray job submit --working-dir . -- python experiments/main_table.py --scale small --corpus s3://... --root s3://...
    python experiments/main_table.py --dry-run                                  # what is reused, what it would cost

Expected before running: BM25 text above random text above task data only; the gap is largest where labels are fewest.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import PLAIN, Flow, Recipe, Training, main
from tlm_ray.runs.cli.recipe_options import Before
from tlm_ray.runs.cli.taught_table import TaughtTable

ROWS = {
    "task data only": lambda recipe: replace(recipe, k=0, rho1=0),
    "TLM, random text": lambda recipe: replace(recipe, method="random"),
    "TLM, BM25 text": lambda recipe: recipe,
}
OURS = "TLM, BM25 text"  # the row that is compared with all others


@dataclass(frozen=True, kw_only=True)
class MainTable(TaughtTable):
    """Options of the main table."""

    name, split, ensembles, pooled, needs_general = "main_table", "test", (OURS,), True, True

    rows: list[str] = field(default_factory=list)
    """rows to train, such as "TLM, BM25 text"; default all"""
    baseline: list[str] = field(default_factory=list)
    """pretrained encoders to fine-tune, a row each: hub names or local folders"""
    before: list[Before] = field(default_factory=lambda: ["plain"])
    """training before the fine-tuning of --baseline, a row each: plain (none), adapted, mlm, tapt, dapt, dapt+tapt or
    tlm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.before != ["plain"] and not self.baseline:
            raise ValueError(f"--before {' '.join(self.before)}: applies to pretrained encoders; give --baseline too")
        known = [*(one.name for one in PLAIN), *ROWS, *self.baselines]
        if unknown := [row for row in self.rows if row not in known]:
            raise ValueError(f"--rows {unknown[0]!r}: allowed are {', '.join(map(repr, known))}")

    @property
    def baselines(self) -> dict[str, tuple[str, Before]]:
        """The rows of pretrained encoders: encoder and training before its fine-tuning."""
        return {
            name if kind == "plain" else f"{name} + {kind.upper()}": (name, kind)
            for name in self.baseline
            for kind in self.before
        }

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a recipe per row, each with other general text."""
        return {row: change(recipe) for row, change in ROWS.items()}

    def recipes(self, task: str, flow: Flow) -> dict[str, Recipe]:
        """Return the recipes of all rows, pretrained encoders included."""
        recipe = self.recipe(task, flow, self.mixture)
        return self.vary(recipe) | {
            row: self.fine_tuned(start, kind, task, flow, self.mixture) for row, (start, kind) in self.baselines.items()
        }

    def trainings(self, flow: Flow) -> list[Training]:
        """Return the trainings of the chosen rows, and of students."""
        return [one for one in super().trainings(flow) if not self.rows or one.row in self.rows or one.teaching]

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect BM25 text above random text, and above task data only."""
        return [(OURS, row) for row in rows if OURS in rows and row in ROWS and row != OURS]

    def main_row(self, rows: list[str]) -> str:
        """Compare with our row if it is in the table."""
        return OURS if OURS in rows else super().main_row(rows)


if __name__ == "__main__":
    main(MainTable, __doc__, ray.init)
