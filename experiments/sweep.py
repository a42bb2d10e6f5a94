"""Sweep of K, rho1, rho2 and the retrieval method on development scores (Yao et al. 2022, tables 3 to 6).

    python experiments/sweep.py                                          # embedded data, 8 trials
    python experiments/sweep.py --ks 50 500 5000 --rho1s 1 19 99 999 --rho2s 20 100 --search asha --scale small ...
    python experiments/sweep.py --dry-run

Expected before running: the dev score rises with K; random text stays below BM25 text at every K.
"""

from dataclasses import dataclass, field

import ray
import tyro

from tlm_ray import Options, Space, best_recipe, plain_errors, ray_options, show_sweep_plan, sweep


@dataclass(frozen=True, kw_only=True)
class Sweep(Options):
    """Options of the sweep; it trains one task, the first of --tasks."""

    ks: list[int] = field(default_factory=lambda: [5, 20])
    """values of K: passages kept a query"""
    rho1s: list[int] = field(default_factory=lambda: [3, 7])
    """values of rho1: general batches a task batch"""
    rho2s: list[float] = field(default_factory=lambda: [20.0])
    """values of rho2: weight of the MLM loss in task batches"""
    methods: list[str] = field(default_factory=lambda: ["bm25", "random"])
    """retrieval methods"""
    search: str = "grid"
    """grid trains every trial to its end; asha stops the worse ones early"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("k", "rho1", "rho2"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"--{name} {value}: a sweep tries several; give --{name}s {value}")

    @property
    def space(self) -> Space:
        """The points to try."""
        return Space(k=self.ks, rho1=self.rho1s, rho2=self.rho2s, method=self.methods, search=self.search)


def main() -> None:
    options = tyro.cli(Sweep, description=__doc__)
    task = options.tasks[0]
    if options.dry_run:
        show_sweep_plan(options.space, options, task)
        return
    ray.init(**ray_options())
    trials = sweep(options.space, options, task, name=f"sweep_{task}")
    print(f"\nThe best of {len(trials)} trials on {task}'s dev set:\n\n{best_recipe(trials, options, task)}")
    print(f"\nTrials and figure: {options.out}/sweep.md, {options.out}/sweep.png")


if __name__ == "__main__":
    with plain_errors():
        main()
