"""Sweep of K, rho1, rho2 and the retrieval method on development scores (Yao et al. 2022, tables 3 to 6).

    python experiments/sweep.py                                          # embedded data, 8 trials
    python experiments/sweep.py --ks 50 500 5000 --rho1s 1 19 99 999 --rho2s 20 100 --search asha --scale small ...
    python experiments/sweep.py --dry-run

Expected before running: the dev score rises with K; random text stays below BM25 text at every K.
"""

from dataclasses import dataclass, field

import ray

from tlm_ray import (
    Budget,
    Changes,
    Cluster,
    Flow,
    Methods,
    OneTask,
    Place,
    Recipe,
    Search,
    Space,
    best_recipe,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    short_name,
    show_sweep_plan,
    sweep,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Options of the sweep; it trains one task with seed 0."""

    data: OneTask = field(default_factory=OneTask)
    changes: Changes = field(default_factory=Changes)
    methods: Methods = field(default_factory=Methods)
    budget: Budget = field(default_factory=Budget)
    place: Place = field(default_factory=Place)
    cluster: Cluster = field(default_factory=Cluster)
    ks: list[int] = field(default_factory=lambda: [5, 20])
    """values of K: passages kept per query"""
    rho1s: list[int] = field(default_factory=lambda: [3, 7])
    """values of rho1: general batches per task batch"""
    rho2s: list[float] = field(default_factory=lambda: [20.0])
    """values of rho2: weight of the MLM loss in task batches"""
    depth: int = 0
    """passages retrieved per query; 0 for the largest of --ks"""
    search: Search = "grid"
    """grid trains every trial to its end; asha stops the worse ones early"""
    dry_run: bool = False
    """list every stage as found or to make, with its cost, and stop"""


def recipes(options: Sweep, flow: Flow) -> list[Recipe]:
    """One recipe per combination of K, rho1, rho2 and method."""
    methods = list(options.methods.chosen().values())
    space = Space(k=options.ks, rho1=options.rho1s, rho2=options.rho2s, method=methods, depth=options.depth)
    base = options.budget.at_best_scale(options.changes, options.data.task, flow).recipe(options.data.task, flow)
    return [options.budget.cut(recipe, options.data.task, flow) for recipe in space.recipes(base)]


def main() -> None:
    options = parse(Sweep, __doc__)
    flow, task, place = open_flow(options.data, options.place, options.cluster), options.data.task, options.place
    tried = recipes(options, flow)
    if options.dry_run:
        show_sweep_plan(tried, flow, task)
        return
    ray.init(**ray_options())
    name = f"sweep_{short_name(task)}"
    found = sweep(tried, flow, task, name=name, out=place.out, search=options.search, tracking_uri=place.tracking_uri)
    print(f"\nThe best of {len(found)} trials on the dev set of {task}:\n\n{best_recipe(found, tried, task)}")
    print(f"\nTrials and figure: {place.out}/{name}.md, {place.out}/{name}.png")


if __name__ == "__main__":
    with plain_errors():
        main()
