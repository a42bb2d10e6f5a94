"""Vary rho1, the general batches per task batch in stage one (Yao et al. 2022, table 5), on dev scores.

    python experiments/rho1.py                                                           # embedded data
    python experiments/rho1.py --scale small --tasks amazon sciie chemprot --rho1s 1 3 99 999 --corpus s3://... ...
    python experiments/rho1.py --dry-run

Expected: with few labels a large rho1 is above rho1 = 1, and general text alone is not far below it.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.report.paper import TABLE_5

ALONE = "general text only"


@dataclass(frozen=True, kw_only=True)
class Rho1(Table):
    """Options of the table of rho1."""

    name, varied, paper = "rho1", "rho1", TABLE_5

    rho1s: list[int] = field(default_factory=lambda: [1, 7, 31])
    """values of rho1 (the paper's: 1, 3, 99, 999)"""

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a row per rho1, then one with general text only."""
        mixed = {f"rho1 = {rho1}": replace(recipe, rho1=rho1) for rho1 in sorted(set(self.rho1s))}
        return mixed | {ALONE: replace(recipe, rho1=None)}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect the largest rho1 to be the best."""
        *_, most, alone = rows
        return [(most, other) for other in (rows[0], alone) if other != most]


if __name__ == "__main__":
    main(Rho1, __doc__, ray.init)
