"""A sweep over k, rho1, rho2 and the retrieval method: Ray Tune on development scores.

A grid needs one retrieval and one tokenisation a (task, method): the shared stages are made once, before the trials. A
trial is the training of a recipe; settings that come to the same training are one trial. Trials are stages, so a sweep
that was killed and is started again finds the finished ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from tlm_ray import storage
from tlm_ray.report import publish_sweep
from tlm_ray.runs.execution import Execution, make
from tlm_ray.runs.experiment import fitted
from tlm_ray.runs.options import Options
from tlm_ray.runs.pipeline import Flow
from tlm_ray.runs.plan import show
from tlm_ray.runs.preflight import check_cluster
from tlm_ray.runs.recipes import Recipe, recipe_for
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

    The script has called `ray.init()`. A point that failed or was stopped has dev None, and its error is in Tune's
    table; RuntimeError if no trial finished.
    """
    options = options.absolute()  # trials run in folders of their own
    task = options.tasks[0] if task not in options.tasks else task
    flow = options.flow()
    execution = fitted(flow.execution, options)
    check_cluster(execution, options)
    flow = replace(flow, execution=execution)
    trials = trial_stages(flow, recipes(space, options, task), task)
    tracker = Tracker.start(name, uri=options.tracking_uri or default_uri())
    try:
        make([stage.inputs["blocks"] for _, stage in trials], execution.root)
        trial = tune.with_parameters(_trial, options=options, task=task, tracker=tracker, execution=execution)
        _tuner(trial, trials, space, execution).fit()
        results = [_result(recipe, stage, execution.root) for recipe, stage in trials]
        if all(result["dev"] is None for result in results):
            raise RuntimeError(f"sweep {name}: no trial finished; the table above has their errors")
    except BaseException:
        tracker.fail()
        raise
    files = publish_sweep(results, options.out)
    tracker.attach(files.values())
    tracker.finish({"best_dev": max(result["dev"] or 0.0 for result in results)})
    return results


def _tuner(trial: Any, trials: Sequence[tuple[Recipe, Stage]], space: Space, execution: Execution) -> tune.Tuner:
    """Trials wait on the head's node, where a SQLite tracker is, and take no CPU from the trainings they wait for."""
    return tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory([{"node:__internal_head__": 0.001}])),
        param_space={"point": tune.grid_search([_point(recipe) for recipe, _ in trials])},
        tune_config=tune.TuneConfig(
            metric="dev", mode="max", max_concurrent_trials=execution.side_by_side, scheduler=_scheduler(space)
        ),
        run_config=tune.RunConfig(
            name=f"sweep-{trials[0][1].fingerprint[:12]}", storage_path=storage.join(execution.root, "tune"), verbose=1
        ),
    )


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
    point = {name: best[name] for name in ("k", "rho1", "rho2", "method", "depth")}
    given, base = options.recipe(task, **point), recipe_for(task.rstrip("/").rpartition("/")[2], options.scale)
    changes = {f.name: getattr(given, f.name) for f in fields(given) if getattr(given, f.name) != getattr(base, f.name)}
    arguments = "".join(f", {name}={value!r}" for name, value in changes.items())
    return f"recipe = replace(recipe_for({task!r}, {options.scale!r}){arguments})  # dev {best['dev']:.2f}"


def _point(recipe: Recipe) -> dict[str, Any]:
    return {"k": recipe.k, "rho1": recipe.rho1, "rho2": recipe.rho2, "method": recipe.method, "depth": recipe.depth}


def _result(recipe: Recipe, stage: Stage, root: str) -> dict[str, Any]:
    record = stage.record(root)
    return _point(recipe) | {"dev": record["facts"]["dev"] if record else None, "fingerprint": stage.fingerprint[:12]}


def _scheduler(space: Space):
    if space.search == "grid":
        return None
    return tune.schedulers.ASHAScheduler(max_t=1000, grace_period=2, reduction_factor=2)


def _trial(config: Mapping[str, Any], *, options: Options, task: str, tracker: Tracker, execution: Execution) -> None:
    """One trial, a light process: the training itself runs on Ray Train's workers."""

    def callbacks(folder: str) -> list[Any]:
        """ASHA compares evaluations of stage two: stage one's may be found, and then it has none."""
        two = folder.rstrip("/").split("/")[-2] == "stage_two"
        return [*tracker.callbacks(folder), *([TuneReportCallback()] if two else [])]

    flow = replace(options.flow(), execution=execution, callbacks=callbacks)
    stage = flow.stage_two(options.recipe(task, **config["point"]), flow.task(task), seed=0)
    records = make([stage], execution.root, watch=lambda made, record: tracker.close(made, execution.root, record))
    tune.report({"dev": records[stage.fingerprint]["facts"]["dev"]})
