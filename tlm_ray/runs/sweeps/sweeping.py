"""Sweep any fields of a recipe on development scores with Ray Tune.

Trials are stages, so a sweep that is run again reuses what is finished and resumes the rest.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.report import check_name, kept_at, publish_sweep
from tlm_ray.report.frames import sweep_frame
from tlm_ray.report.sweeps import best_of, sort_trials, sweep_latex, sweep_markdown
from tlm_ray.retrieval.methods import METHODS
from tlm_ray.runs.experiment import opened, show_plan, show_reasons
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.naming import kept_key
from tlm_ray.runs.preflight import check_starts
from tlm_ray.runs.recipes.paper import recipe_for
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.space import Point
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.registry import note
from tlm_ray.runs.stages.stage import DIGITS, Stage, fingerprint_of, unique
from tlm_ray.runs.sweeps.searches import Scheduler, Search
from tlm_ray.runs.sweeps.trials import Trials
from tlm_ray.runs.sweeps.tuning import DRAWS, MOST, RUNGS, Limits, Tuning
from tlm_ray.runs.telling import Teller
from tlm_ray.training.launching.errors import TrainingStopped

if TYPE_CHECKING:
    import pandas as pd

NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The result of a sweep."""

    trials: Sequence[Mapping[str, Any]]
    """each point's values and dev (None if it failed or was stopped early), in order of their start"""
    parameters: Sequence[str]
    """the names of these values, which are those of the varied parameters"""
    best: Mapping[str, Recipe]
    """the recipe of the best trial, by task"""
    result: Mapping[str, Any]
    """values and dev score of the best trial and, with several seeds, the 95 % interval of dev (low, high)"""
    steps: int
    """optimizer steps of all trials, trained or reused"""
    ranges: Mapping[str, bool] = field(default_factory=dict)
    """parameters that were sampled from a range, and whether it is on a logarithmic scale"""
    grid: tune.ResultGrid | None = None
    """Ray Tune's results, a row per trial with its metrics and path; None where every point was reused"""

    def __repr__(self) -> str:
        return sweep_markdown(self._ordered).rstrip("\n")

    def _repr_html_(self) -> str:
        from tlm_ray.report.page import elements  # imported here, because matplotlib takes 0.4 s

        return elements.sweep_html(self._ordered, self.parameters, self.ranges)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row per trial, best first, see `tlm_ray.report.frames.sweep_frame`."""
        return sweep_frame(self._ordered)

    def to_latex(self) -> str:
        """Return the trials as LaTeX, best first, which needs the package booktabs."""
        return sweep_latex(self._ordered)

    @property
    def _ordered(self) -> list[dict[str, Any]]:
        return sort_trials(self.trials, self.parameters)


def sweep(
    trials: Trials,
    *,
    name: str,
    out: str,
    search: Search | Searcher = "grid",
    scheduler: Scheduler | TrialScheduler = "none",
    limits: Limits = NO_LIMITS,
    warm_start: bool = False,
    tracking_uri: str = "",
    callbacks: Sequence[tune.Callback] = (),
) -> Swept:
    """Train points of a space on every task and seed with Ray Tune; the script has called `ray.init()`.

    search: "grid" trains all points, "random" draws some, "optuna" uses TPE; or any searcher of Ray Tune. scheduler:
    "asha" and "median" stop trials early, "halving" trains all for a ninth of the steps first; or any scheduler of Ray
    Tune whose `time_attr` is "evaluation". Tables, figures and a page go under the location `out`, named after the
    sweep. warm_start: recorded trials of the same space are passed to the searcher. callbacks: further ones of Ray
    Tune. TrainingStopped if no trial finished.
    """
    started = time.monotonic()
    check_name(name)
    points = points_of(trials, search, limits)
    kind = search if isinstance(search, str) else type(search).__name__
    key = fingerprint_of({"search": kind, "sweep": trials.key})[:DIGITS]
    flow, tracker = opened(name, trials.flow, tracking_uri, key=key)
    own = Tuning(
        trials=replace(trials, flow=replace(trials.flow, execution=flow.execution)),
        key=key,
        tracker=tracker,
        limits=limits,
        scheduler=scheduler,
        callbacks=callbacks,
    )
    tracker.records.found([stage for p in points for stage in own.trials.trial(p).trained])  # read side by side
    try:
        check_starts(trials.bases.values(), flow.execution)
        is_listed = search in ("grid", "random")
        ready = _with_data(own, points, suggests=not is_listed and scheduler != "halving")
        if scheduler == "halving":
            own.halve(ready)
        elif is_listed:
            own.train(ready)
        else:
            own.suggest(search, warm_start)
        if not _finished(own):
            spent = " before its hours or money were spent; give more to go on"
            why = spent if own.budget.stop_all() else "; the lines of its trials say why"
            raise TrainingStopped(f"sweep {name}: no trial finished{why}")
    except BaseException:
        tracker.fail()
        raise
    console.print(_costs(own, time.monotonic() - started))
    laid_out = {training: stages for trial in own.begun.values() for training, stages in trial.stages.items()}
    story = Teller(stages=laid_out, records=tracker.records).story(flow.execution.compute)
    unnamed = [task for task in trials.bases if short_name(task) not in name]
    kept = kept_key(unnamed, trials.bases.values(), key)
    space, table = trials.space, own.table()
    files = publish_sweep(name, table, out, parameters=space.names, story=story, key=kept, ranges=space.ranges)
    tracker.attach(files.values())
    console.print(f"Kept when another sweep of this name is written: {storage.shown(kept_at(name, out, kept))}")
    result = _swept(own)
    tracker.finish({"best_dev": result.result["dev"]})
    return result


def _swept(own: Tuning) -> Swept:
    """Return the result; the best of equal trials is the first that was trained to the end."""
    best = max(_finished(own), key=lambda words: own.rows[words]["dev"])
    point = own.begun[best].point
    return Swept(
        trials=own.table(),
        ranges=own.trials.space.ranges,
        parameters=own.trials.space.names,
        best={task: own.trials.recipe(task, point) for task in own.trials.bases},
        result=own.rows[best],
        steps=own.steps,
        grid=own.grid,
    )


def _finished(own: Tuning) -> list[str]:
    """Return the words of the trials that were trained to the end."""
    return [words for words, row in own.rows.items() if row["dev"] is not None and own.begun[words].share == 1]


def points_of(trials: Trials, search: Search | Searcher, limits: Limits) -> list[Point]:
    """Return the points of a search; for a searcher that suggests them as many random ones, to estimate its cost.

    ValueError for a point that cannot be trained; of a searcher's, only if none can.
    """
    drawn = search != "grid"
    if drawn and not limits.trials:
        name = search if isinstance(search, str) else type(search).__name__
        raise ValueError(f"--search {name} needs --trials N")
    points = trials.space.draws(DRAWS) if drawn else trials.space.points()
    tried = points if search in ("grid", "random") else trials.possible(points)
    return list(itertools.islice(trials.distinct(tried), limits.trials or None))


def _with_data(own: Tuning, points: Sequence[Point], *, suggests: bool) -> Sequence[Point]:
    """Make the data stages of all trials with the whole cluster, and return the points that have theirs.

    Trials whose data stages failed count as failed; the error is raised if there is no other. suggests: see `_shared`.
    """
    shared = _shared(own.trials, points, suggests=suggests)
    note(own.root, own.tracker.name, shared, key=own.key)  # before they are made, or clean.py would delete them
    try:
        make(shared, own.root, known=own.tracker.records, wait_for_locks=True)
    except Exception:  # `make` has printed it, and made what does not need the stage that failed
        ready = [point for point in points if own.has_data(point)]
        if not ready:
            raise
        own.fail([point for point in points if point not in ready])
        return ready
    return points


def _shared(trials: Trials, points: Sequence[Point], *, suggests: bool) -> list[Stage]:
    """Return the data stages to make before any trial: of lists all, of ranges those that all points share.

    suggests: a searcher will suggest points, of lists any of the grid.
    """
    if suggests and trials.space.is_grid:
        whole = trials.possible(itertools.islice(trials.space.points(), MOST))
        points = list(whole) if len(points) < MOST else points
    of_each = [
        {stage.fingerprint: stage for stage in unique(trials.trial(point).lasts) if stage.lane == "data"}
        for point in points
    ]
    common = set.union if trials.space.is_grid else set.intersection
    wanted = common(*(set(stages) for stages in of_each))
    return list({name: stage for stages in of_each for name, stage in stages.items() if name in wanted}.values())


def _costs(own: Tuning, wall_s: float) -> str:
    """Return a line about the sweep's time, and how much of it was not training."""
    run = own.trials.flow.execution
    there = own.there - own.made
    fresh = {s.fingerprint: s for trial in own.begun.values() for s in trial.trained if s.fingerprint not in there}
    records = [record for stage in fresh.values() if (record := own.tracker.records.of(stage))]
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
    """Return the recipe with the best dev score on a task as Python, with that score, its interval and the trials."""
    given, found = swept.best[task], swept.result
    base = recipe_for(short_name(task), given.scale)
    changes = {f.name: getattr(given, f.name) for f in fields(given) if getattr(given, f.name) != getattr(base, f.name)}
    if given.method in [method() for method in METHODS.values()] and "method" in changes:
        changes["method"] = given.method.name  # the name means its default settings
    arguments = "".join(f", {name}={value!r}" for name, value in changes.items())
    over_seeds = f" (95 % interval {found['low']:.2f} to {found['high']:.2f})" if "low" in found else ""
    dev = f"{found['dev']:.2f}{over_seeds}, {best_of(swept.trials)}"
    return f"recipe = replace(recipe_for({short_name(task)!r}, {given.scale!r}){storage.shown(arguments)})  # dev {dev}"
