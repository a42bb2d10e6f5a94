"""Vary K, the passages kept per query (Yao et al. 2022, table 4), on development scores.

    python experiments/k.py                                                              # embedded data
    python experiments/k.py --scale small --tasks ag sciie chemprot --ks 50 500 5000 --corpus s3://... --root s3://...
    python experiments/k.py --dry-run

Each row trains its tokenizer on the task's text and the text that its K keeps. K = 0 has the task's text only. All rows
share one retrieval.

Expected before running: the recipe's K above smaller K, and above task data only; the gap is largest with few labels.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.report.paper import TABLE_4

NONE = "task data only"


@dataclass(frozen=True, kw_only=True)
class K(Table):
    """Options of the table of K."""

    name, varied, paper, needs_general = "k", "k", TABLE_4, True

    ks: list[int] = field(default_factory=list)
    """values of K; default: 1 %, 10 % and 100 % of the recipe's K, such as the paper's 50, 500 and 5000"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ks and self.passages.k not in (None, *self.ks):
            raise ValueError(f"--k {self.passages.k}: is not among --ks {' '.join(map(str, self.ks))}; give --ks alone")
        if self.passages.depth is not None and self.passages.depth < max(self.ks, default=0):
            raise ValueError(f"--depth {self.passages.depth}: must be the largest of --ks, {max(self.ks)}, or more")

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a recipe per K, with one retrieval for all and a tokenizer for each."""
        ks = sorted(set(self.ks or [max(1, recipe.k // 100), max(1, recipe.k // 10), recipe.k]))
        whole = replace(recipe, k=ks[-1], depth=max(ks[-1], recipe.depth), vocabulary_text="k")
        return {NONE: replace(whole, k=0, rho1=0)} | {f"K = {k}": replace(whole, k=k) for k in ks}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect the largest K above all others; tasks whose recipes have another K may lack a row."""
        *less, most = sorted((row for row in rows if row != NONE), key=lambda row: int(row.removeprefix("K = ")))
        return [(most, row) for row in (NONE, *less)]


if __name__ == "__main__":
    main(K, __doc__, ray.init)
