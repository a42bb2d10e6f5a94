"""Vary rho2, the weight of the MLM loss on task text in stage one (Yao et al. 2022, table 6), on dev scores.

    python experiments/rho2.py                                                           # embedded data
    python experiments/rho2.py --scale small --tasks rct-20k sciie chemprot --corpus s3://... --root s3://...
    python experiments/rho2.py --dry-run

Expected: rho2 = 0 is below all others; from 20 to 1000 little changes.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.report.paper import TABLE_6


@dataclass(frozen=True, kw_only=True)
class Rho2(Table):
    """Options of the table of rho2."""

    name, varied, paper = "rho2", "rho2", TABLE_6

    rho2s: list[float] = field(default_factory=lambda: [0.0, 20.0, 100.0, 1000.0])
    """values of rho2, the weight of the MLM loss in task batches"""

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Vary rho2."""
        return {f"rho2 = {rho2:g}": replace(recipe, rho2=rho2) for rho2 in sorted(set(self.rho2s))}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect any weight to be better than none."""
        none, *others = rows
        return [(other, none) for other in others if none == "rho2 = 0"]


if __name__ == "__main__":
    main(Rho2, __doc__, ray.init)
