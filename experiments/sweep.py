"""Sweep any fields of a recipe on development scores (Yao et al. 2022, tables 3 to 6, sweep K, rho1, rho2, method).

    python experiments/sweep.py                                          # embedded data, 8 trials
    python experiments/sweep.py --ks 50 500 5000 --rho1s 1 19 99 999 --rho2s 20 100 --scheduler asha --scale small ...
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
    Recipe,
    Scheduler,
    Search,
    Space,
    Training,
    Trials,
    best_recipe,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    read_values,
    run,
    short_name,
    show_sweep,
    storage,
    sweep,
)  # fmt: skip
from tlm_ray.runs.cli.commands import predict_command

OWN_FLAGS = {"k": "ks", "rho1": "rho1s", "rho2": "rho2s", "method": "methods"}
FIXED = {  # flags of one value
    "precision": "precision",
    "stage_one.steps": "steps",
    "stage_two.steps": "steps_two",
    "stage_one.batch_rows": "batch_rows",
    "stage_two.batch_rows": "batch_rows",
}
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
    """values of K, passages kept per query; fields without values keep the recipe's (no values at all: 8 trials)"""
    rho1s: list[int] = field(default_factory=list)
    """values of rho1: general batches per task batch"""
    rho2s: list[float] = field(default_factory=list)
    """values of rho2: weight of the MLM loss in task batches"""
    vary: Annotated[list[str], tyro.conf.arg(metavar="FIELD=VALUES ...")] = field(default_factory=list)
    """values of any other field of the recipe, such as vocabulary=4000,8000; random and optuna also take a range
    LOW..HIGH or LOW..HIGH:log, such as stage_one.learning_rate=1e-4..1e-2:log"""
    depth: int = 0
    """passages retrieved per query; 0 for the largest of --ks"""
    seeds: int = 1
    """trainings per trial and task, with seeds 0, 1, ...; a trial's score is the mean over tasks and seeds"""
    search: Search = "grid"
    """grid (all points), random or optuna (TPE)"""
    scheduler: Scheduler = "none"
    """early stopping: asha, median, halving (all points for a ninth of the steps first), or none"""
    warm_start: bool = False
    """pass the recorded trials of the same space to Optuna"""
    dry_run: bool = False
    """list every stage, reused or to make, with its cost, and exit"""
    why: bool = False
    """list every stage to make and how it differs from the nearest recorded one, and exit"""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")
        if self.warm_start and self.search != "optuna":
            raise ValueError(f"--warm-start: needs --search optuna, not {self.search}")
        if self.scheduler == "halving" and self.search == "optuna":
            raise ValueError("--scheduler halving: needs --search grid or random, a list of points; or give asha")
        for pair in self.vary:
            name, equals, values = pair.partition("=")
            if not (name and equals and values):
                raise ValueError(f"--vary {pair!r}: give FIELD=VALUES, such as vocabulary=4000,8000")
            if name in OWN_FLAGS:
                raise ValueError(f"--vary {pair}: has its own flag; give --{OWN_FLAGS[name]}")
            if name == "depth" and self.depth:
                raise ValueError(f"--depth: has no effect with --vary {pair}; leave it out")
            flag = FIXED.get(name, "")
            if flag and getattr(self.changes, flag) not in (None, ""):
                raise ValueError(f"--{flag.replace('_', '-')}: has no effect with --vary {pair}; leave it out")

    def space(self) -> Space:
        """Return the space: the fields with values or, if there are none, some of the paper's."""
        methods = list(self.methods.chosen().values())
        own: dict[str, Any] = {"k": self.ks, "rho1": self.rho1s, "rho2": self.rho2s, "method": methods}
        more = {name: read_values(values) for name, _, values in (pair.partition("=") for pair in self.vary)}
        given = {name: values for name, values in own.items() if values} | more
        return Space(given or UNLESS_TOLD, depth=self.depth)

    def trials(self, flow: Flow) -> Trials:
        """Return the trials of the space."""
        changes = {task: self.budget.at_best_scale(self.changes, task, flow) for task in self.data.tasks}
        bases = {task: own.marked(own.recipe(task, flow), task, flow, self.data.tasks) for task, own in changes.items()}
        return Trials(
            space=self.space(),
            bases=bases,
            flow=flow,
            seeds=self.seeds,
            fit=lambda recipe, task: self.budget.cut(recipe, flow),
        )


def main() -> None:
    options = parse(Sweep, __doc__)
    place, tasks = options.place, options.data.tasks
    trials = options.trials(open_flow(options.data, place, options.cluster))
    if options.dry_run or options.why:
        show_sweep(trials, search=options.search, scheduler=options.scheduler, limits=options.limits, why=options.why)
        return
    ray.init(**ray_options())
    name = f"sweep_{'_'.join(short_name(task) for task in tasks)}"
    found = sweep(
        trials,
        name=name,
        out=place.out,
        search=options.search,
        scheduler=options.scheduler,
        limits=options.limits,
        warm_start=options.warm_start,
        tracking_uri=place.tracking_uri,
    )
    for task in tasks:
        print(f"\nThe best recipe for {task}:\n\n{best_recipe(found, task)}")
        show_best(found.best[task], task, options, trials.flow, name)
    print(storage.shown(f"\nTrials and figure: {place.out}/{name}.md, {place.out}/{name}.png"))


def show_best(recipe: Recipe, task: str, options: Sweep, flow: Flow, name: str) -> None:
    """Print the best recipe's test score, its model, and the command that predicts with it; nothing is trained anew."""
    trainings = [Training(row="best", task=task, recipe=recipe, seed=seed) for seed in range(options.seeds)]
    outcome = run(trainings, flow, name=f"{name}_best", tracking_uri=options.place.tracking_uri)
    facts = {training: outcome.facts(training) for training in trainings}
    best = max(trainings, key=lambda training: facts[training]["dev"])
    scores = ", ".join(f"{own['test']:.2f}" for own in facts.values())
    print(f"\nTest scores of its seeds: {scores}")
    print(f"Model of seed {best.seed}, the best on dev: {storage.shown(outcome.model(best))}")
    if not flow.is_embedded(task):
        print(storage.shown(predict_command(flow.read(task), [outcome.model(best)])))


if __name__ == "__main__":
    with plain_errors():
        main()
