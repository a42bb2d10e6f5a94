"""Sweep any fields of a recipe on development scores with Ray Tune.

Trials are stages, so a sweep that is run again reuses what is finished and resumes the rest.
"""

import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.hub import short_name
from tlm_ray.report import check_name, publish_sweep
from tlm_ray.report.sweeps import best_of
from tlm_ray.retrieval.methods import METHODS
from tlm_ray.runs.experiment import opened, show_plan, show_reasons
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.preflight import check_starts
from tlm_ray.runs.recipes.paper import recipe_for
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.space import Point
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.registry import noted
from tlm_ray.runs.stages.stage import DIGITS, Stage, fingerprint_of, found, unique
from tlm_ray.runs.sweeps.following import Budget, Follow, begin, close
from tlm_ray.runs.sweeps.searches import (
    REDUCTION,
    Distinct,
    Scheduler,
    Search,
    is_number,
    listed,
    optuna_search,
    scheduler_named,
)
from tlm_ray.runs.sweeps.trial import DONE, needs, run_trial
from tlm_ray.runs.sweeps.trials import Trial, Trials
from tlm_ray.runs.telling import Teller

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

DRAWS = 0  # the seed of points drawn at random
MOST = 1_000  # maximum points of a grid to look up, or to make data stages for
RUNGS = (1 / REDUCTION**2, 1 / REDUCTION, 1.0)  # shares of the steps, of successive halving


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sweep's cost; when they are reached it ends, and a later run with higher ones continues it."""

    trials: int = 0
    """points to train; 0 for the whole grid (search grid or asha only)"""
    hours: float = 0.0
    """GPU hours of training (CPU hours without GPUs), reused trials included; 0 for no limit"""
    money: float = 0.0
    """cost of the sweep, in the currency of the price; 0 for no limit"""
    price: float = 0.0
    """price per GPU hour (CPU hour without GPUs)"""

    def __post_init__(self) -> None:
        for name in ("trials", "hours", "money", "price"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name):g}: must be 0, for no limit, or more")
        if bool(self.money) != bool(self.price):
            raise ValueError("money and price: give both, the most a sweep may cost and the price per hour")

    @property
    def worker_hours(self) -> float:
        """The hours that the sweep may cost, infinite for no limit."""
        bought = self.money / self.price if self.money else math.inf
        return min(self.hours or math.inf, bought)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The result of a sweep."""

    trials: Sequence[Mapping[str, Any]]
    """each point's values and dev (None if it failed or was stopped early), in order of their start"""
    best: Mapping[str, Recipe]
    """the recipe of the best trial, by task"""
    result: Mapping[str, Any]
    """values and dev score of the best trial and, with several seeds, the 95 % interval of dev (low, high)"""
    steps: int
    """optimizer steps of all trials, trained or reused"""
    grid: tune.ResultGrid | None = None
    """Ray Tune's results, a row per trial with its metrics and path; None where every point was reused"""


@dataclass(kw_only=True)
class _Sweep:
    """A sweep under way."""

    trials: Trials
    key: str
    tracker: "Tracker"
    limits: Limits
    scheduler: Scheduler | TrialScheduler
    callbacks: Sequence[tune.Callback]
    begun: dict[str, Trial] = field(default_factory=dict)  # by their words
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # of trials that ended, likewise
    steps: int = 0
    grid: tune.ResultGrid | None = None

    @property
    def root(self) -> str:
        return self.trials.flow.execution.root

    def reuse(self, points: Sequence[Point], share: float = 1.0) -> None:
        """Count points whose trainings are all recorded as trials of the sweep."""
        for point in points:
            trial = self.trials.trial(point, share)
            begin(self.begun, trial, self.trials, self.tracker, self.key)
            close(trial, self.root, self.tracker)
            self.rows[trial.words] = {**trial.labels, **self.trials.score(trial)}
            self.steps += trial.steps

    def train(self, points: Sequence[Point], share: float = 1.0) -> None:
        """Train the points of a list; where all of them are recorded, Ray Tune has nothing to do."""
        trials = [self.trials.trial(point, share) for point in points]
        if isinstance(self.scheduler, str) and all(trial.is_done(self.root) for trial in trials):
            self.reuse(points, share)
            return
        self.search(listed([dict(trial.labels) for trial in trials]), len(points), share)

    def search(self, searcher: Any, count: int, share: float = 1.0) -> None:
        """Train what a searcher suggests, and read how each trial ended."""
        self.grid = self._tuner(searcher, count, share).fit()
        for result in map(self.grid.__getitem__, range(len(self.grid))):
            point = self.trials.space.point(result.config or {})
            assert point is not None, f"{result.config} is of another space"
            trial = self.trials.trial(point, share)
            self.rows[trial.words] = _row(trial, result)
            self.steps += (result.metrics or {}).get("steps", 0)

    def _tuner(self, searcher: Any, count: int, share: float) -> tune.Tuner:
        run, limit = self.trials.flow.execution, self.limits.worker_hours
        os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")  # trials read local files of the driver's folder
        filesystem, path = storage.open_filesystem(storage.join(self.root, "sweeps"))
        function = tune.with_parameters(run_trial, trials=self.trials, share=share)
        return tune.Tuner(
            tune.with_resources(function, needs(run.compute)),
            param_space=self.trials.space.as_tune(),
            tune_config=tune.TuneConfig(
                metric="dev",
                mode="max",
                num_samples=count,
                search_alg=searcher,
                scheduler=scheduler_named(self.scheduler, self._evaluations()),
                max_concurrent_trials=run.side_by_side,
                reuse_actors=True,  # a further process would take 12 s
            ),
            run_config=tune.RunConfig(
                name=f"{self.tracker.name}-{self.key}",
                storage_path=path,
                storage_filesystem=filesystem,
                verbose=0,
                stop=None if math.isinf(limit) else Budget(limit),
                failure_config=tune.FailureConfig(max_failures=run.compute.max_failures),
                callbacks=[Follow(self.trials, share, self.tracker, self.begun, self.key), *self.callbacks],
            ),
        )

    def _evaluations(self) -> int:
        """Return the most evaluations that a trial has."""
        points = itertools.islice(self.trials.space.draws(DRAWS), REDUCTION**2)
        return max(self.trials.trial(point).evaluations for point in points)

    def halve(self, points: Sequence[Point]) -> None:
        """Train all points for a ninth of the steps, the best third for a third, the best of those to the end."""
        for share in RUNGS:
            self.train(points, share)
            ranked = sorted(points, key=lambda point: -self._dev(point, share))
            points = ranked[: max(1, len(points) // REDUCTION)]

    def _dev(self, point: Point, share: float) -> float:
        dev = self.rows[self.trials.trial(point, share).words]["dev"]
        return -math.inf if dev is None else dev

    def table(self) -> list[dict[str, Any]]:
        """Return a mapping per point, of its longest training; a training that was stopped early has no dev score."""
        table: dict[str, dict[str, Any]] = {}
        for words, row in self.rows.items():
            trial = self.begun[words]
            if trial.share < 1 and row["dev"] is not None:
                row = {**trial.labels, "dev": None, "stopped_step": trial.steps, "stopped_dev": row["dev"]}
            table[str(trial.labels)] = row | {"fingerprint": trial.key[0][:12]}
        return list(table.values())

    def swept(self) -> Swept:
        """Return the result; the best of equal trials is the first that was trained to the end."""
        done = [words for words, row in self.rows.items() if row["dev"] is not None and self.begun[words].share == 1]
        best = max(done, key=lambda words: self.rows[words]["dev"])
        point = self.begun[best].point
        return Swept(
            trials=self.table(),
            best={task: self.trials.recipe(task, point) for task in self.trials.bases},
            result=self.rows[best],
            steps=self.steps,
            grid=self.grid,
        )


def _row(trial: Trial, result: tune.Result) -> dict[str, Any]:
    """Return a trial's row; dev is None where it failed or was stopped."""
    found = result.metrics or {}
    if DONE in found:
        return {**trial.labels, **{name: found[name] for name in ("dev", "low", "high", *trial.tasks) if name in found}}
    stopped = {"stopped_step": found["steps"], "stopped_dev": found["dev"]} if is_number(found.get("dev")) else {}
    return {**trial.labels, "dev": None, **stopped}


def sweep(
    trials: Trials,
    *,
    name: str,
    out: str,
    search: Search | Searcher = "grid",
    scheduler: Scheduler | TrialScheduler = "none",
    limits: Limits = Limits(),
    warm_start: bool = False,
    tracking_uri: str = "",
    callbacks: Sequence[tune.Callback] = (),
) -> Swept:
    """Train points of a space on every task and seed with Ray Tune; the script has called `ray.init()`.

    search: "grid" trains all points, "random" draws some, "optuna" uses TPE; or any searcher of Ray Tune. scheduler:
    "asha" and "median" stop trials early, "halving" trains all for a ninth of the steps first; or any scheduler of Ray
    Tune whose `time_attr` is "evaluation". Tables, figures and a page go under the location `out`, named after the
    sweep. warm_start: recorded trials of the same space are passed to the searcher. callbacks: further ones of Ray
    Tune. RuntimeError if no trial finished.
    """
    started = time.monotonic()
    check_name(name)
    points = points_of(trials, search, limits)
    kind = search if isinstance(search, str) else type(search).__name__
    key = fingerprint_of({"search": kind, "sweep": trials.key})[:DIGITS]
    flow, tracker = opened(name, trials.flow, tracking_uri, key=key)
    own = _Sweep(
        trials=replace(trials, flow=replace(trials.flow, execution=flow.execution)),
        key=key,
        tracker=tracker,
        limits=limits,
        scheduler=scheduler,
        callbacks=callbacks,
    )
    fresh = _to_train(own.trials, points)
    try:
        check_starts(trials.bases.values(), flow.execution)
        make(_shared(own.trials, points), flow.execution.root)
        if scheduler == "halving":
            own.halve(points)
        elif search in ("grid", "random"):
            own.train(points)
        else:
            _suggest(own, search, warm_start)
        if not any(row["dev"] is not None for row in own.rows.values()):
            raise RuntimeError(f"sweep {name}: no trial finished")
    except BaseException:
        tracker.fail()
        raise
    console.print(_costs(own, fresh, time.monotonic() - started))
    laid_out = {training: stages for trial in own.begun.values() for training, stages in trial.stages.items()}
    story = Teller.of(laid_out, flow.execution.root).story(flow.execution.root, flow.execution.compute)
    files = publish_sweep(name, own.table(), out, parameters=trials.space.names, story=story)
    tracker.attach(files.values())
    result = own.swept()
    tracker.finish({"best_dev": result.result["dev"]})
    return result


def points_of(trials: Trials, search: Search | Searcher, limits: Limits) -> list[Point]:
    """Return the points of a search; for a searcher that suggests them as many random ones, to estimate its cost."""
    drawn = search != "grid"
    if drawn and not limits.trials:
        raise ValueError(f"--search {search} needs --trials N")
    points = trials.distinct(trials.space.draws(DRAWS) if drawn or limits.trials else trials.space.points())
    return list(itertools.islice(points, limits.trials or None))


def _shared(trials: Trials, points: Sequence[Point]) -> list[Stage]:
    """Return the data stages to make before any trial: all of a list or grid, of ranges those that all points share."""
    if trials.space.is_grid:
        points = list(itertools.islice(trials.space.points(), MOST)) if len(points) < MOST else points
    of_each = [
        {stage.fingerprint: stage for stage in unique(trials.trial(point).lasts) if stage.lane == "data"}
        for point in points
    ]
    common = set.union if trials.space.is_grid else set.intersection
    wanted = common(*(set(stages) for stages in of_each))
    return list({name: stage for stages in of_each for name, stage in stages.items() if name in wanted}.values())


def _suggest(own: _Sweep, search: Search | Searcher, warm_start: bool) -> None:
    """Train what a searcher suggests; points that this sweep tried before count as trials, or come first."""
    tried = _tried(own.trials, own.key)
    known = [point for point in tried if own.trials.trial(point).is_done(own.root)]
    others = list(own.trials.distinct(_recorded(own.trials, tried))) if warm_start else []
    own.reuse([*others, *known])
    told = [
        (dict(own.trials.space.labels(point)), own.rows[own.trials.trial(point).words]) for point in (*others, *known)
    ]
    scores = [(labels, row["dev"]) for labels, row in told]
    searcher = optuna_search(seed=DRAWS, trials=own.limits.trials, known=scores) if isinstance(search, str) else search
    first = [dict(own.trials.space.labels(point)) for point in tried if point not in known]
    by_key = {own.trials.key_of(point): dev for point, (_, dev) in zip((*others, *known), scores, strict=True)}
    left = own.limits.trials - len(known)
    if left > 0:
        own.search(Distinct(searcher, own.trials, known=by_key, first=first), left)


def _tried(trials: Trials, key: str) -> list[Point]:
    """Return the points that the same sweep began before."""
    kept = [labels for one in noted(trials.flow.execution.root) if key in one.uri for labels in one.points]
    return [point for labels in kept if (point := trials.space.point(labels)) is not None]


def _recorded(trials: Trials, own: Sequence[Point]) -> list[Point]:
    """Return points that other jobs trained: of a grid any sweep or table, of ranges other sweeps."""
    root, space = trials.flow.execution.root, trials.space
    if space.is_grid:
        points = list(itertools.islice(space.points(), MOST))
    else:
        kept = [labels for one in noted(root) for labels in one.points]
        points = [point for labels in kept if (point := space.point(labels)) is not None]
    return [point for point in points if point not in own and trials.trial(point).is_done(root)]


def _to_train(trials: Trials, points: Sequence[Point]) -> set[str]:
    """Return the fingerprints of the trainings that are recorded before a sweep."""
    stages = [stage for point in points for stage in trials.trial(point).trained]
    return set(found(stages, trials.flow.execution.root))


def _costs(own: _Sweep, there: set[str], wall_s: float) -> str:
    """Return a line about the sweep's time, and how much of it was not training."""
    run = own.trials.flow.execution
    fresh = {s.fingerprint: s for trial in own.begun.values() for s in trial.trained if s.fingerprint not in there}
    records = [record for stage in fresh.values() if (record := stage.record(run.root))]
    trained = sum(record["facts"]["seconds"] for record in records)
    beside = sum(record["seconds"] for record in records) - trained
    count = sum(any(stage.fingerprint in fresh for stage in trial.trained) for trial in own.begun.values())
    total = len(own.begun)
    return (
        f"{total} trials ({count} trained now, {total - count} reused) in {wall_s:.0f} s: "
        f"{trained:.0f} s of training, {run.side_by_side} side by side: {trained / run.side_by_side:.0f} s; "
        f"start-up per trial {beside / max(1, count):.1f} s; "
        f"{own.steps:,} steps"
    )


def show_sweep(
    trials: Trials, *, search: Search, limits: Limits, scheduler: Scheduler = "none", why: bool = False
) -> None:
    """Print what a sweep would make and cost, or why (`why`); needs no cluster."""
    points, share = points_of(trials, search, limits), RUNGS[0] if scheduler == "halving" else 1.0
    trainings: list[Training] = [training for point in points for training in trials.trial(point, share).stages]
    (show_reasons if why else show_plan)(trainings, trials.flow, last=lambda stages: stages.trained[-1])
    if scheduler == "halving":
        console.print(
            "estimate of the lowest rung of successive halving; each of the two above takes at most as many steps"
        )
    elif scheduler != "none":
        console.print(f"estimate without early stopping; {scheduler} stops most trials before their end")
    if search == "optuna":
        console.print("estimate for points drawn at random; Optuna will choose others")


def best_recipe(swept: Swept, task: str) -> str:
    """Return the recipe with the best dev score on a task as a line of Python, with the number of trials."""
    given = swept.best[task]
    base = recipe_for(short_name(task), given.scale)
    changes = {f.name: getattr(given, f.name) for f in fields(given) if getattr(given, f.name) != getattr(base, f.name)}
    if given.method in [method() for method in METHODS.values()] and "method" in changes:
        changes["method"] = given.method.name  # the name means its default settings
    arguments = "".join(f", {name}={value!r}" for name, value in changes.items())
    arguments, dev = storage.shown(arguments), f"{swept.result['dev']:.2f}, {best_of(swept.trials)}"
    return f"recipe = replace(recipe_for({task!r}, {given.scale!r}){arguments})  # dev {dev}"
