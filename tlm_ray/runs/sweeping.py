"""A sweep over k, rho1, rho2 and the retrieval method: Ray Tune on development scores.

A grid needs one retrieval and one tokenisation a (task, method): the shared stages are made once, before the trials. A
trial is the training of a recipe; settings that come to the same training are one trial. Trials are stages, so a sweep
that was killed and is started again finds the finished ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from tlm_ray import storage
from tlm_ray.report import publish_sweep
from tlm_ray.runs.execution import make
from tlm_ray.runs.experiment import fitted
from tlm_ray.runs.options import Options
from tlm_ray.runs.pipeline import Flow
from tlm_ray.runs.plan import show
from tlm_ray.runs.preflight import check_cluster
from tlm_ray.runs.recipes import Recipe
from tlm_ray.runs.stages import Stage
from tlm_ray.runs.tracking import Tracker, default_uri

SEARCHES = ("grid", "asha")


@dataclass(frozen=True, kw_only=True)
class Space:
    """The values that a sweep tries, all combinations of them.

    search: "grid" trains each to its end, "asha" stops the worse half at each doubling of its
    evaluations (Li et al. 2020).
    """

    k: Sequence[int]
    rho1: Sequence[int]
    rho2: Sequence[float]
    method: Sequence[str]
    search: str = "grid"

    def __post_init__(self) -> None:
        if self.search not in SEARCHES:
            raise ValueError(f"search {self.search!r}: allowed are {', '.join(SEARCHES)}")
        for name in ("k", "rho1", "rho2", "method"):
            if not getattr(self, name):
                raise ValueError(f"{name}: give at least one value to try")

    def points(self) -> list[dict[str, Any]]:
        """List all combinations."""
        names = ("k", "rho1", "rho2", "method")
        return [dict(zip(names, values, strict=True)) for values in product(*(getattr(self, n) for n in names))]


def recipes(space: Space, options: Options, task: str) -> list[Recipe]:
    """Return one recipe a point; they share the retrieval, which reaches to the largest k."""
    depth = options.depth or max(space.k)
    return [options.recipe(task, **point, depth=max(1, depth)) for point in space.points()]


def trial_stages(flow: Flow, tried: Sequence[Recipe], task: str) -> list[tuple[Recipe, Stage]]:
    """Return each distinct training and the first recipe that comes to it; seed 0, chosen on the dev set."""
    stages = [(recipe, flow.stage_two(recipe, flow.task(task), seed=0)) for recipe in tried]
    return list({stage.fingerprint: (recipe, stage) for recipe, stage in reversed(stages)}.values())[::-1]


def sweep(space: Space, options: Options, task: str, *, name: str) -> list[dict[str, Any]]:
    """Train every point of a space on a task; returns trials of k, rho1, rho2, method and dev, in order of the space.

    The script has called `ray.init()`. A point that fails or is stopped has dev None; the error is in Tune's table.
    """
    tracker = Tracker.start(name, uri=options.tracking_uri or default_uri())
    flow = options.flow()
    execution = fitted(flow.execution, options)
    flow = replace(flow, execution=execution)
    check_cluster(execution, shared_root=options.shared_root, autoscaling=options.autoscaling)
    trials = trial_stages(flow, recipes(space, options, task), task)
    make([stage.inputs["blocks"] for _, stage in trials], execution.root)
    points = [_point(recipe) for recipe, _ in trials]
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(_trial, options=options, task=task, tracker=tracker, execution=execution),
            {"CPU": 0.01},
        ),
        param_space={"point": tune.grid_search(points)},
        tune_config=tune.TuneConfig(
            metric="dev", mode="max", max_concurrent_trials=execution.side_by_side, scheduler=_scheduler(space)
        ),
        run_config=tune.RunConfig(
            name=f"sweep-{trials[0][1].fingerprint[:12]}", storage_path=_tune_folder(execution.root), verbose=1
        ),
    )
    tuner.fit()
    results = [_result(recipe, stage, execution.root) for recipe, stage in trials]
    files = publish_sweep(results, storage.absolute(options.out))
    tracker.finish(files, {"best_dev": max((r["dev"] for r in results if r["dev"] is not None), default=0.0)})
    return results


def show_sweep_plan(space: Space, options: Options, task: str) -> None:
    """Print what a sweep would make and what it would cost; needs no cluster."""
    flow = options.flow()
    show([stage for _, stage in trial_stages(flow, recipes(space, options, task), task)], flow.execution)


def best_recipe(trials: Sequence[Mapping[str, Any]], options: Options, task: str) -> str:
    """Return the recipe of the best dev score as Python that makes it."""
    done = [trial for trial in trials if trial["dev"] is not None]
    if not done:
        return "# no trial finished"
    best = max(done, key=lambda trial: trial["dev"])
    changes = {name: best[name] for name in ("k", "rho1", "rho2", "method")}
    given = options.recipe(task, **changes, depth=max(1, best["k"]))
    base = options.recipe(task)
    changes |= {
        name: getattr(given, name) for name in ("stage_one", "stage_two") if getattr(given, name) != getattr(base, name)
    }
    arguments = ", ".join(f"{name}={value!r}" for name, value in changes.items())
    made = f"replace(recipe_for({task!r}, {options.scale!r}), depth={max(1, best['k'])}, {arguments})"
    return f"recipe = {made}  # dev {best['dev']:.2f}"


def _point(recipe: Recipe) -> dict[str, Any]:
    return {"k": recipe.k, "rho1": recipe.rho1, "rho2": recipe.rho2, "method": recipe.method, "depth": recipe.depth}


def _result(recipe: Recipe, stage: Stage, root: str) -> dict[str, Any]:
    record = stage.record(root)
    point = {name: value for name, value in _point(recipe).items() if name != "depth"}
    return point | {"dev": record["facts"]["dev"] if record else None, "fingerprint": stage.fingerprint[:12]}


def _scheduler(space: Space):
    if space.search == "grid":
        return None
    return tune.schedulers.ASHAScheduler(max_t=1000, grace_period=2, reduction_factor=2)


def _tune_folder(root: str) -> str:
    return storage.join(root, "tune")


def _trial(config: Mapping[str, Any], *, options: Options, task: str, tracker: Tracker, execution: Any) -> None:
    """One trial, a light process: the training itself runs on Ray Train's workers."""
    flow = replace(
        options.flow(), execution=execution, callbacks=lambda folder: [*tracker.callbacks(folder), TuneReportCallback()]
    )
    recipe = options.recipe(task, **config["point"])
    stage = flow.stage_two(recipe, flow.task(task), seed=0)
    records = make([stage], execution.root, watch=lambda made, record: tracker.close(made, execution.root, record))
    tune.report({"dev": records[stage.fingerprint]["facts"]["dev"]})
