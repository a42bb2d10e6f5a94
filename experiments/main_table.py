"""Main table: TLM against its ablations, as in table 2 and section 4.3 of Yao et al. (2022).

    python experiments/main_table.py                                            # embedded data, a laptop, minutes
    ray job submit --working-dir . -- python experiments/main_table.py --scale small --corpus s3://... --root s3://...
    python experiments/main_table.py --dry-run                                  # what is found, what it would cost

Expected before running: BM25 text above random text above task data only; the gap is largest where labels are fewest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import ray
from rich.console import Console

from tlm_ray import (
    PLAIN,
    Flow,
    Mixture,
    Recipe,
    TfIdf,
    Training,
    TrainingOptions,
    baseline,
    open_flow,
    parse,
    plain_errors,
    print_table,
    ray_options,
    run,
    show_plan,
)  # fmt: skip

ROWS = {
    "task data only": lambda recipe: replace(recipe, k=0, rho1=0),
    "TLM, random text": lambda recipe: replace(recipe, method="random"),
    "TLM, BM25 text": lambda recipe: recipe,
}
OURS = "TLM, BM25 text"  # the row whose differences from all others are told
BESIDE = TfIdf.name  # the plain row that has its share in further rows, beside the trainings
PLAIN_ROWS = {classifier.name: classifier for classifier in PLAIN}  # what one would pick instead, in seconds


@dataclass(frozen=True, kw_only=True)
class MainTable(TrainingOptions):
    """Options of the main table."""

    mixture: Mixture = field(default_factory=Mixture)
    seeds: int = 3
    """trainings per cell, seeds 0, 1, ..."""
    rows: list[str] = field(default_factory=list)
    """rows to make, such as "TLM, BM25 text", instead of all"""
    student: bool = False
    """one more row: models that learn what all seeds of the last row together say of the training texts"""
    baseline: list[str] = field(default_factory=list)
    """pretrained encoders to fine-tune as further rows: hub names or local folders"""
    before: list[str] = field(default_factory=lambda: ["plain"])
    """what comes before their fine-tuning, a row each: plain (nothing), mlm, tapt, dapt or tlm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("k", self.passages.k), ("rho1", self.mixture.rho1)):
            if value == 0:
                raise ValueError(
                    f"--{name} 0: without general text all rows would be one training, that of the row 'task data "
                    f"only', which is there anyway; give 1 or more"
                )
        if self.before != ["plain"] and not self.baseline:
            raise ValueError(f"--before {' '.join(self.before)}: is of pretrained encoders; give --baseline too")
        if self.baseline and self.budget.minutes is not None:
            raise ValueError(f"--minutes {self.budget.minutes:g}: the speed of --baseline is not known; give --tokens")
        if self.student and self.seeds < 2:
            raise ValueError(f"--student --seeds {self.seeds}: one teacher has no more to say; give --seeds 2 or more")
        known = [*PLAIN_ROWS, *ROWS, *self.baselines]
        if unknown := [row for row in self.rows if row not in known]:
            raise ValueError(f"--rows {unknown[0]!r}: allowed are {', '.join(map(repr, known))}")

    @property
    def baselines(self) -> dict[str, Callable[[Recipe], Recipe]]:
        """The rows of pretrained encoders, and how their recipes come from a task's."""
        return {
            name if kind == "plain" else f"{name} + {kind.upper()}": partial(baseline, start=name, kind=kind)
            for name in self.baseline
            for kind in self.before
        }


def trainings(options: MainTable, flow: Flow) -> list[Training]:
    """One training per row, task and seed; stages that they share are made once."""
    tasks, seeds = options.data.tasks, tuple(range(options.seeds))
    recipes = {task: options.recipe(task, flow, options.mixture) for task in tasks}
    plain = [Training(row=row, task=task, recipe=own) for row, own in PLAIN_ROWS.items() for task in tasks]
    trained = [
        Training(row=row, task=task, recipe=vary(recipe), seed=seed)
        for row, vary in (ROWS | options.baselines).items()
        for task, recipe in recipes.items()
        for seed in seeds
    ]
    kept = [one for one in plain + trained if not options.rows or one.row in options.rows]
    taught = [
        Training(row=f"{OURS}, student of {len(seeds)}", task=task, recipe=recipe, seed=seed, teachers=seeds)
        for task, recipe in recipes.items()
        for seed in seeds
    ]
    return kept + (taught if options.student else [])


def main() -> None:
    options = parse(MainTable, __doc__)
    flow = open_flow(options.data, options.place, options.cluster)
    if options.dry_run:
        show_plan(trainings(options, flow), flow)
        return
    ray.init(**ray_options())
    outcome = run(
        trainings(options, flow),
        flow,
        name="main_table",
        tracking_uri=options.place.tracking_uri,
        ensembles=[OURS],
        beside=BESIDE,
    )
    comparison = outcome.comparison(OURS)
    print_table(outcome.cells(), Console(), comparison, notes=outcome.notes)
    for uri in outcome.publish(options.place.out, comparison).values():
        print(uri)


if __name__ == "__main__":
    with plain_errors():
        main()
