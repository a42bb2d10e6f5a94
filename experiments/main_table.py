"""Main table: TLM against its ablations, as in table 2 and section 4.3 of Yao et al. (2022).

    python experiments/main_table.py                                            # embedded data, a laptop, minutes
    ray job submit --working-dir . -- python experiments/main_table.py --scale small --corpus s3://... --root s3://...
    python experiments/main_table.py --dry-run                                  # what is found, what it would cost

Expected before running: BM25 text above random text above task data only; the gap is largest where labels are fewest.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import ray
import tyro
from rich.console import Console

from tlm_ray import Options, Training, baseline, plain_errors, print_table, ray_options, run, show_plan

ROWS = {
    "task data only": lambda recipe: replace(recipe, k=0, rho1=0),
    "TLM, random text": lambda recipe: replace(recipe, method="random"),
    "TLM, BM25 text": lambda recipe: recipe,
}


@dataclass(frozen=True, kw_only=True)
class MainTable(Options):
    """Options of the main table."""

    baseline: list[str] = field(default_factory=list)
    """pretrained encoders to fine-tune as further rows: hub names or local folders"""
    before: list[str] = field(default_factory=lambda: ["plain"])
    """what comes before their fine-tuning, a row each: plain (nothing), mlm, tapt, dapt or tlm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.before != ["plain"] and not self.baseline:
            raise ValueError(f"--before {' '.join(self.before)}: is of pretrained encoders; give --baseline too")
        if self.baseline and self.minutes is not None:
            raise ValueError(f"--minutes {self.minutes}: the speed of --baseline is not known; give --tokens")


def trainings(options: MainTable) -> list[Training]:
    """One training a row, task and seed; stages that they share are made once."""
    kinds = {
        name if kind == "plain" else f"{name} + {kind.upper()}": partial(baseline, start=name, kind=kind)
        for name in options.baseline
        for kind in options.before
    }
    rows = ROWS | kinds
    return [
        Training(row=row, task=task, recipe=vary(options.recipe(task)), seed=seed)
        for row, vary in rows.items()
        for task in options.tasks
        for seed in range(options.seeds)
    ]


def main() -> None:
    options = tyro.cli(MainTable, description=__doc__)
    if options.dry_run:
        show_plan(trainings(options), options)
        return
    ray.init(**ray_options())
    outcome = run(trainings(options), options, name="main_table")
    print_table(outcome.cells(), Console())
    for uri in outcome.publish(options.out).values():
        print(uri)


if __name__ == "__main__":
    with plain_errors():
        main()
