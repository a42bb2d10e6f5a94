"""Plot scores over FLOPs for recipes of several scales and shares of their tokens (Yao et al., figure 1).

    python experiments/flops.py                                          # embedded data: a quarter, a half, all of tiny
    python experiments/flops.py --scales mini midi --tasks sciie chemprot --corpus data/corpus --task-root data/tasks
    python experiments/flops.py --scales small medium --baseline google-bert/bert-base-uncased --corpus s3://... ...
    python experiments/flops.py --dry-run

Expected: more FLOPs give higher scores; pretrained encoders score the same at many times the FLOPs.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Flow, Recipe, Table, main
from tlm_ray.runs.recipes.budget import parts_of


@dataclass(frozen=True, kw_only=True)
class Flops(Table):
    """Options of the figure."""

    name, split = "flops", "test"

    scales: list[str] = field(default_factory=list)
    """scales of recipes, smallest first, instead of --scale"""
    parts: list[float] = field(default_factory=lambda: [0.25, 0.5, 1.0])
    """shares of each recipe's tokens to train on"""
    baseline: list[str] = field(default_factory=list)
    """pretrained encoders to fine-tune as baselines: hub names or local folders"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget.minutes is not None and self.scales:
            minutes = f"{self.budget.minutes:g}"
            raise ValueError(f"--minutes {minutes}: gives every scale the same time; give --tokens instead")
        if self.changes.scale and self.scales:
            raise ValueError(f"--scale {self.changes.scale}: has no effect with --scales; leave it out")
        for part in self.parts:
            if not 0 < part <= 1:
                raise ValueError(f"--parts {part:g}: must be above 0 and at most 1, a share of a recipe's tokens")

    def recipes(self, task: str, flow: Flow) -> dict[str, Recipe]:
        """Return a row per scale and share."""
        found: dict[str, Recipe] = {}
        for scale in self.scales or [self.changes.at(task, flow)]:
            own = replace(self, changes=replace(self.changes, scale=scale))
            found |= own.vary(own.recipe(task, flow, self.mixture))
        return found | {start: own.fine_tuned(start, "plain", task, flow, self.mixture) for start in self.baseline}

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Shorten the recipe to the share."""
        return {
            f"TLM {recipe.scale}" + (f", {part:g} of it" if part < 1 else ""): own
            for part, own in parts_of(recipe, self.parts).items()
        }

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect the largest training to be the best."""
        *less, most = [row for row in rows if row not in self.baseline]
        return [(most, row) for row in less]

    def main_row(self, rows: list[str]) -> str:
        """Return our largest training."""
        return [row for row in rows if row not in self.baseline][-1]


if __name__ == "__main__":
    main(Flops, __doc__, ray.init)
