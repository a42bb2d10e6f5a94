"""Vary the layers of the encoder, on development scores.

    python experiments/depth.py                                                          # embedded data
    python experiments/depth.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/depth.py --layers 2 4 6 --dry-run

All rows share one retrieval and one tokenizer, and have the recipe's width. The first number of layers sets the cost.
Each other number is two rows: one takes as many counted operations, the other ("all steps") as many steps.

Expected before running: more layers above fewer for equally many steps. Nothing is expected for equal operations.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Recipe, main
from tlm_ray.runs.cli.equal_cost_table import EqualCostTable
from tlm_ray.training.encoders.starts import Scratch

ALL_STEPS = ", all steps"


@dataclass(frozen=True, kw_only=True)
class Depth(EqualCostTable):
    """Options of the table of depths."""

    name = "depth"

    layers: list[int] = field(default_factory=lambda: [2, 3, 4])
    """numbers of layers, smallest first; the first sets the cost"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers or min(self.layers) < 1 or self.layers != sorted(set(self.layers)):
            raise ValueError(f"--layers {' '.join(map(str, self.layers))}: give one or more from 1 on, smallest first")
        if self.budget.minutes is not None:
            raise ValueError(f"--minutes {self.budget.minutes:g}: rows with all steps take longer; give --steps")

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a recipe per number of layers."""
        if not isinstance(recipe.start, Scratch):
            raise ValueError("--architecture: has no number of layers to change; leave it out")
        rows: dict[str, Recipe] = {}
        for layers in self.layers:
            deeper = replace(recipe, start=Scratch(replace(recipe.start.geometry, layers=layers)))
            rows |= {_row(layers): deeper, _row(layers) + ALL_STEPS: deeper}
        del rows[_row(self.layers[0]) + ALL_STEPS]  # the first row itself
        return rows

    def keeps_steps(self, row: str) -> bool:
        """Return whether a row takes as many steps as the first."""
        return row.endswith(ALL_STEPS)

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect more layers above the first for equally many steps."""
        first = _row(self.layers[0])
        return [(row, first) for row in rows if self.keeps_steps(row) and first in rows]

    def main_row(self, rows: list[str]) -> str:
        """Return the first row."""
        return rows[0]


def _row(layers: int) -> str:
    return f"{layers} layer{'s' * (layers > 1)}"


if __name__ == "__main__":
    main(Depth, __doc__, ray.init)
