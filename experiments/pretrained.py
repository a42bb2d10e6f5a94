"""Compare TLM with a pretrained encoder adapted to the task (Yao et al. 2022, tables 8 and A.2), on test scores.

    python experiments/pretrained.py                                    # embedded data, an encoder pretrained here
    python experiments/pretrained.py --start FacebookAI/roberta-base --scale medium --tasks ag hyp sciie ...
    python experiments/pretrained.py --kinds plain mlm dapt tapt dapt+tapt --start FacebookAI/roberta-base ...
    python experiments/pretrained.py --dry-run

Without --start an encoder is pretrained here, by the recipe's stage one on as much random general text, so it has seen
no more text than TLM. Expected: MLM on the task's text helps it, and TLM is above both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import ray

from tlm_ray import (
    Flow,
    Recipe,
    Table,
    Training,
    View,
    baseline,
    main,
    pretraining,
)  # fmt: skip
from tlm_ray.report.paper import TABLE_8, TABLE_A2
from tlm_ray.runs.recipes.gururangan import with_gururangans_settings

NAMES = {"plain": "PLM", "mlm": "PLM + MLM", "dapt": "DAPT", "tapt": "TAPT", "dapt+tapt": "DAPT + TAPT"}
OURS = "TLM"
Kind = Literal["plain", "mlm", "dapt", "tapt", "dapt+tapt"]


@dataclass(frozen=True, kw_only=True)
class PretrainedTable(Table):
    """Options of the table of pretrained encoders."""

    name, split, paper = "pretrained", "test", TABLE_8

    start: str = ""
    """hub name or local folder of the encoder; if unset: one pretrained here"""
    gururangan: bool = False
    """use the steps and learning rates of Gururangan et al. (2020) instead of the recipe's"""
    kinds: list[Kind] = field(default_factory=lambda: ["plain", "mlm"])
    """steps before its fine-tuning, a row each: plain (none), mlm (with labels), dapt, tapt, or dapt+tapt"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gururangan and not self.start:
            raise ValueError("--gururangan: needs a pretrained encoder; give --start too")
        if self.gururangan and self.budget.given:
            raise ValueError(f"--gururangan: sets the steps itself; leave out {self.budget.given}")

    def recipes(self, task: str, flow: Flow) -> dict[str, Recipe]:
        """Return a row per kind of adaptation, with the settings of Gururangan et al. if requested, and TLM."""
        recipe = self.recipe(task, flow, self.mixture)
        found = {NAMES[kind]: self._adapted(recipe, kind, task, flow) for kind in self.kinds}
        if self.gururangan:
            rows = flow.train_rows(task)
            found = {row: with_gururangans_settings(own, train_rows=rows) for row, own in found.items()}
        return found | self.vary(recipe)

    def _adapted(self, recipe: Recipe, kind: Kind, task: str, flow: Flow) -> Recipe:
        if self.start:
            return self.fine_tuned(self.start, kind, task, flow, self.mixture)
        return baseline(recipe, pretraining(recipe), kind)

    def view(self, trainings: Sequence[Training]) -> View:
        """Show the paper's own numbers below those of adaptive pretraining."""
        adaptive = any("dapt" in kind or "tapt" in kind for kind in self.kinds)
        return replace(super().view(trainings), paper=TABLE_A2 if adaptive else TABLE_8)

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return the recipe of TLM from scratch."""
        return {OURS: recipe}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect TLM to be the best, and adaptation to help."""
        plain = NAMES["plain"]
        adapted = [(row, plain) for row in rows if plain in rows and row not in (plain, OURS)]
        return [(OURS, row) for row in rows if row != OURS] + adapted


if __name__ == "__main__":
    main(PretrainedTable, __doc__, ray.init)
