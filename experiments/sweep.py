"""Sweep of any fields of a recipe on development scores (Yao et al. 2022, tables 3 to 6, sweep K, rho1, rho2, method).

    python experiments/sweep.py                                          # embedded data, 8 trials
    python experiments/sweep.py --ks 50 500 5000 --rho1s 1 19 99 999 --rho2s 20 100 --search asha --scale small ...
    python experiments/sweep.py --vary stage_one.learning_rate=1e-4..1e-2:log vocabulary=4000,8000 --search optuna \\
        --trials 20 --tasks sciie chemprot --seeds 3 --hours 12
    python experiments/sweep.py --dry-run

Expected before running: the dev score rises with K; random text stays below BM25 text at every K.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import ray
import tyro

from tlm_ray import (
    Budget,
    Changes,
    Cluster,
    Data,
    Flow,
    Limits,
    Methods,
    Place,
    Search,
    Space,
    Trials,
    best_recipe,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    read_values,
    short_name,
    show_sweep,
    sweep,
)  # fmt: skip

OWN_FLAGS = {"k": "ks", "rho1": "rho1s", "rho2": "rho2s", "method": "methods"}
UNLESS_TOLD: dict[str, Any] = {"k": [5, 20], "rho1": [3, 7], "method": ["bm25", "random"]}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Options of the sweep."""

    data: Data = field(default_factory=Data)
    changes: Changes = field(default_factory=Changes)
    methods: Methods = field(default_factory=lambda: Methods(methods=[]))
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)
    place: Place = field(default_factory=Place)
    cluster: Cluster = field(default_factory=Cluster)
    ks: list[int] = field(default_factory=list)
    """values of K: passages kept per query; what is not given is the recipe's (nothing given: a grid of 8 trials)"""
    rho1s: list[int] = field(default_factory=list)
    """values of rho1: general batches per task batch"""
    rho2s: list[float] = field(default_factory=list)
    """values of rho2: weight of the MLM loss in task batches"""
    vary: Annotated[list[str], tyro.conf.arg(metavar="FIELD=VALUES ...")] = field(default_factory=list)
    """any other field of the recipe: vocabulary=4000,8000 or, for a search that draws, a range LOW..HIGH or
    LOW..HIGH:log, such as stage_one.learning_rate=1e-4..1e-2:log"""
    depth: int = 0
    """passages retrieved per query; 0 for the largest of --ks"""
    seeds: int = 1
    """trainings of a trial on each task, seeds 0, 1, ...; a trial's score is the mean over tasks and seeds"""
    search: Search = "grid"
    """grid trains all; random some, drawn; asha all for some steps, the best to the end; optuna asks Optuna"""
    warm_start: bool = False
    """tell Optuna what is recorded under the root of the same space"""
    dry_run: bool = False
    """list every stage as found or to make, with its cost, and stop"""
    why: bool = False
    """list every stage to make and how it differs from the nearest result, and stop"""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")
        if self.warm_start and self.search != "optuna":
            raise ValueError(f"--warm-start: is for --search optuna, not {self.search}")
        for pair in self.vary:
            name, equals, values = pair.partition("=")
            if not (name and equals and values):
                raise ValueError(f"--vary {pair!r}: give FIELD=VALUES, such as vocabulary=4000,8000")
            if name in OWN_FLAGS:
                raise ValueError(f"--vary {pair}: has a flag of its own; give --{OWN_FLAGS[name]}")

    def space(self) -> Space:
        """Return what is varied: the fields that have values, or, of none, some of the paper's."""
        methods = list(self.methods.chosen().values())
        own: dict[str, Any] = {"k": self.ks, "rho1": self.rho1s, "rho2": self.rho2s, "method": methods}
        more = {name: read_values(values) for name, _, values in (pair.partition("=") for pair in self.vary)}
        given = {name: values for name, values in own.items() if values} | more
        return Space(given or UNLESS_TOLD, depth=self.depth)

    def trials(self, flow: Flow) -> Trials:
        """Return what makes trials of points."""
        bases = {
            task: self.budget.at_best_scale(self.changes, task, flow).recipe(task, flow) for task in self.data.tasks
        }
        return Trials(
            space=self.space(),
            bases=bases,
            flow=flow,
            seeds=self.seeds,
            fit=lambda recipe, task: self.budget.cut(recipe, task, flow),
        )


def main() -> None:
    options = parse(Sweep, __doc__)
    place, tasks = options.place, options.data.tasks
    trials = options.trials(open_flow(options.data, place, options.cluster))
    if options.dry_run or options.why:
        show_sweep(trials, search=options.search, limits=options.limits, why=options.why)
        return
    ray.init(**ray_options())
    name = f"sweep_{'_'.join(short_name(task) for task in tasks)}"
    found = sweep(
        trials,
        name=name,
        out=place.out,
        search=options.search,
        limits=options.limits,
        warm_start=options.warm_start,
        tracking_uri=place.tracking_uri,
    )
    for task in tasks:
        print(f"\nThe best recipe for {task}:\n\n{best_recipe(found, task)}")
    print(f"\nTrials and figure: {place.out}/{name}.md, {place.out}/{name}.png")


if __name__ == "__main__":
    with plain_errors():
        main()
