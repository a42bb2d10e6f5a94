"""A sweep over k, rho1, rho2 and the retrieval method: Ray Tune on development scores.

A grid needs one retrieval and one tokenisation per task and method: the shared stages are made once, before the
trials. A trial is the training of a recipe; settings that come to the same training are one trial. Trials are stages,
so a sweep that was killed and is started again finds the finished ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal

from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from tlm_ray import storage
from tlm_ray.corpus.hub import short_name
from tlm_ray.report import check_name, publish_sweep
from tlm_ray.retrieval.methods import METHODS, Method
from tlm_ray.runs.execution import Execution, make
from tlm_ray.runs.pipeline import Flow
from tlm_ray.runs.plan import Wanted, show
from tlm_ray.runs.preflight import check_cluster, fitted
from tlm_ray.runs.recipe import Recipe
from tlm_ray.runs.recipes import recipe_for
from tlm_ray.runs.stages import Stage
from tlm_ray.runs.tracking import Tracker, default_uri
from tlm_ray.training.placement import free_orphans
from tlm_ray.training.schedules import Schedule

Search = Literal["grid", "asha"]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The values that a sweep tries, all combinations of them."""

    k: Sequence[int]
    """passages kept per query"""
    rho1: Sequence[int]
    """general batches per task batch"""
    rho2: Sequence[float]
    """weight of the MLM loss in task batches"""
    method: Sequence[str | Method]
    """retrieval methods, by name or with their settings"""
    depth: int = 0
    """passages retrieved per query, which all share; 0 for the largest k"""

    def __post_init__(self) -> None:
        for name in ("k", "rho1", "rho2", "method"):
            if not getattr(self, name):
                raise ValueError(f"{name}: give at least one value to try")

    def recipes(self, base: Recipe) -> list[Recipe]:
        """Return one recipe per combination, all else as in `base`; they share one retrieval per method."""
        names = ("k", "rho1", "rho2", "method")
        points = product(*(getattr(self, name) for name in names))
        depth = self.depth or max(1, *self.k)
        return [replace(base, **dict(zip(names, values, strict=True)), depth=depth) for values in points]


def trial_stages(flow: Flow, tried: Sequence[Recipe], task: str) -> list[tuple[Recipe, Stage]]:
    """Return each distinct training and the first recipe that comes to it; seed 0, chosen on the dev set."""
    stages = [(recipe, flow.stages(recipe, task, 0).last) for recipe in tried]
    return list({stage.fingerprint: (recipe, stage) for recipe, stage in reversed(stages)}.values())[::-1]


def sweep(
    tried: Sequence[Recipe],
    flow: Flow,
    task: str,
    *,
    name: str,
    out: str,
    search: Search = "grid",
    tracking_uri: str = "",
) -> list[dict[str, Any]]:
    """Train recipes on a task; returns trials of k, rho1, rho2, method and dev, in the order of the recipes.

    search: "grid" trains each to its end, "asha" stops the worse half at each doubling of its evaluations (Li et al.
    2020). Tables and a figure go under the location `out`, named after the sweep. The script has called `ray.init()`. A
    recipe that failed has dev None, and its error is in Tune's table; so has one that was stopped early, with
    stopped_step and stopped_dev, the last that was known of it. RuntimeError if no trial finished.
    """
    check_name(name)
    if any(recipe.one_stage for recipe in tried):
        raise ValueError("one_stage True: a sweep follows stage two; tables and `run` take recipes without one")
    execution = fitted(flow.execution)
    check_cluster(execution, [place for corpus in flow.all_corpora for place in corpus.locations])
    flow = replace(flow, execution=execution)
    trials = trial_stages(flow, tried, task)
    tracker = Tracker.start(name, uri=tracking_uri or default_uri(), root=execution.root)
    for recipe, stage in trials:
        tracker.label(stage, task=short_name(task), **_point(recipe))
    try:
        make([each for _, stage in trials for each in stage.upstream() if each.lane == "data"], execution.root)
        recipes = {stage.fingerprint: recipe for recipe, stage in trials}
        trial = tune.with_parameters(_trial, recipes=recipes, flow=flow, task=task, tracker=tracker)
        watch = _Trials(trials, execution.root, tracker)
        _tuner(trial, trials, search, execution, watch).fit()
        free_orphans()  # of trials that were stopped at the very end
        results = [_result(recipe, stage, execution.root, watch.stopped) for recipe, stage in trials]
        if all(result["dev"] is None for result in results):
            raise RuntimeError(f"sweep {name}: no trial finished; the table above has their errors")
    except BaseException:
        tracker.fail()
        raise
    files = publish_sweep(name, results, out)
    tracker.attach(files.values())
    tracker.finish({"best_dev": max(result["dev"] or 0.0 for result in results)})
    return results


def _tuner(
    trial: Any, trials: Sequence[tuple[Recipe, Stage]], search: Search, execution: Execution, watch: tune.Callback
) -> tune.Tuner:
    """Trials wait on the head's node, where a SQLite tracker is, and take no CPU from the trainings they wait for."""
    return tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory([{"node:__internal_head__": 0.001}])),
        param_space={"fingerprint": tune.grid_search([stage.fingerprint for _, stage in trials])},
        tune_config=tune.TuneConfig(
            metric="dev",
            mode="max",
            max_concurrent_trials=execution.side_by_side,
            scheduler=_scheduler(search, [recipe.stage_two for recipe, _ in trials]),
        ),
        run_config=tune.RunConfig(
            name=f"sweep-{trials[0][1].fingerprint[:12]}",
            storage_path=storage.join(execution.root, "tune"),
            verbose=1,
            callbacks=[watch],
        ),
    )


def show_sweep_plan(tried: Sequence[Recipe], flow: Flow, task: str) -> None:
    """Print what a sweep would make and what it would cost; needs no cluster."""
    wanted = [
        Wanted(row=_in_words(recipe), task=short_name(task), seed=0, stage=stage)
        for recipe, stage in trial_stages(flow, tried, task)
    ]
    show(wanted, flow.execution)


def _in_words(recipe: Recipe) -> str:
    return f"{recipe.method.name} K {recipe.k} rho1 {recipe.rho1} rho2 {recipe.rho2:g}"


def best_recipe(trials: Sequence[Mapping[str, Any]], tried: Sequence[Recipe], task: str) -> str:
    """Return the recipe of the best dev score as Python that makes it."""
    done = [trial for trial in trials if trial["dev"] is not None]
    if not done:
        return "# no trial finished"
    best = max(done, key=lambda trial: trial["dev"])
    given = next(recipe for recipe in tried if _point(recipe).items() <= dict(best).items())
    base = recipe_for(short_name(task), given.scale)
    changes = {f.name: getattr(given, f.name) for f in fields(given) if getattr(given, f.name) != getattr(base, f.name)}
    if given.method in [method() for method in METHODS.values()] and "method" in changes:
        changes["method"] = given.method.name  # which stands for its default settings
    arguments = "".join(f", {name}={value!r}" for name, value in changes.items())
    return f"recipe = replace(recipe_for({task!r}, {given.scale!r}){arguments})  # dev {best['dev']:.2f}"


def _point(recipe: Recipe) -> dict[str, Any]:
    return {
        "k": recipe.k,
        "rho1": recipe.rho1,
        "rho2": recipe.rho2,
        "method": recipe.method.name,
        "depth": recipe.depth,
    }


def _result(recipe: Recipe, stage: Stage, root: str, stopped: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial as the tables take it; only a record is a result."""
    record = stage.record(root)
    last = {} if record else stopped.get(stage.fingerprint, {})
    dev = record["facts"]["dev"] if record else None
    return _point(recipe) | {"dev": dev, "fingerprint": stage.fingerprint[:12]} | last


def _scheduler(search: Search, schedules: Sequence[Schedule]) -> Any:
    """Compare trials at 2, 4, 8, ... evaluations of stage two, counted in steps, as a trial may have been resumed."""
    if search == "grid":
        return None
    steps, every = (max(getattr(schedule, name) for schedule in schedules) for name in ("steps", "evaluate_every"))
    return tune.schedulers.ASHAScheduler(
        time_attr="step", max_t=steps, grace_period=min(2 * every, steps), reduction_factor=2
    )


class _Evaluations(TuneReportCallback):
    """Hands a training's evaluations to Tune, all but the last: its record follows, and no trial may be stopped there.

    Runs in Ray Train's controller.
    """

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """Report the step and the dev score."""
        found = {name: metrics[0][name] for name in ("step", "dev")}
        if found["step"] < self.steps:
            super().after_report(run_context, [found], checkpoint)


class _Trials(tune.Callback):
    """Frees the places of stopped trials for those that wait, and ends their runs in MLflow; runs on the driver.

    Tune ends a trial's process, and the training's controller dies with it a moment later, when no hook is called any
    more: so all that is orphaned is freed at every turn of Tune's loop, ten a second.
    """

    def __init__(self, trials: Sequence[tuple[Recipe, Stage]], root: str, tracker: Tracker):
        self.stages = {stage.fingerprint: stage for _, stage in trials}
        self.root, self.tracker = root, tracker
        self.stopped: dict[str, dict[str, Any]] = {}  # the last that is known of a trial, by its stage's fingerprint

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Free what dead controllers hold."""
        free_orphans()

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """End the runs of a trial that was stopped; one that has finished has a record and has ended them."""
        stage, last = self.stages[trial.config["fingerprint"]], trial.last_result
        if stage.record(self.root) is None:
            self.stopped[stage.fingerprint] = {"stopped_step": last["step"], "stopped_dev": last["dev"]}
            self._end(stage, "KILLED")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """End the runs of a trial that failed."""
        self._end(self.stages[trial.config["fingerprint"]], "FAILED")

    def _end(self, last: Stage, status: str) -> None:
        for stage in last.upstream():
            if stage.lane == "train" and stage.record(self.root) is None:
                self.tracker.end(stage, status)


def _trial(
    config: Mapping[str, str], *, recipes: Mapping[str, Recipe], flow: Flow, task: str, tracker: Tracker
) -> None:
    """One trial, a light process: the training itself runs on Ray Train's workers."""

    def callbacks(stage: Stage) -> list[Any]:
        """ASHA compares evaluations of stage two; stage one may be cached, and a cached stage reports nothing."""
        steps = stage.parameters["schedule"].steps
        return [
            *tracker.callbacks(stage),
            *flow.callbacks(stage),
            *([_Evaluations(steps)] if stage.name == "stage_two" else []),
        ]

    recipe = recipes[config["fingerprint"]]
    stage = replace(flow, callbacks=callbacks).stages(recipe, task, 0).last
    record = make([stage], flow.execution.root, watch=tracker.close)[stage.fingerprint]
    tune.report({"dev": record["facts"]["dev"], "step": recipe.stage_two.steps})
