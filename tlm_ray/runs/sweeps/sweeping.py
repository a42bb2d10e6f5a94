"""Sweep any fields of a recipe on development scores.

A search chooses the next point; `make` runs its stages beside others, each shared stage once. Trials are stages, so a
restarted sweep reuses what is finished and resumes the rest.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from rich.markup import escape

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
from tlm_ray.runs.recipes.space import Point, words_of
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.registry import note
from tlm_ray.runs.stages.stage import Stage, unique
from tlm_ray.runs.sweeps.journals import Journal
from tlm_ray.runs.sweeps.searches import Chosen, Halving, Listed, Search, Searcher, Suggested
from tlm_ray.runs.sweeps.trials import Trial, Trials
from tlm_ray.runs.telling import Teller
from tlm_ray.runs.tracking.tracked import recipe_words

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

DRAWS = 0  # the seed of points drawn at random


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sweep's cost. No trial starts whose estimated cost exceeds them; running trials finish."""

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

    def allow(self, hours: Callable[[], float]) -> bool:
        """Return whether the hours are within the limits; they are only counted if there is a limit."""
        if not (self.hours or self.money):
            return True
        counted = hours()
        return (not self.hours or counted <= self.hours) and (not self.money or counted * self.price <= self.money)


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


@dataclass(kw_only=True)
class _Feed:
    """Feeds trials to `make` and records their results."""

    trials: Trials
    searcher: Searcher
    limits: Limits
    tracker: "Tracker"
    note: Callable[[Point], None]
    begun: list[Trial] = field(default_factory=list)
    going: list[Trial] = field(default_factory=list)  # started, and not yet reported to the searcher
    error: Exception | None = None  # of choosing or scoring; no trial starts after it
    results: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)  # of finished trials, by their keys
    fresh: dict[str, Stage] = field(default_factory=dict)  # trainings that were not reused

    def more(self, records: Mapping[str, Any], errors: Mapping[str, BaseException]) -> list[Stage]:
        """Return the stages of the next trial, [] if there is none now; an error here lets running trials finish."""
        try:
            return [] if self.error else self._next(records, errors)
        except Exception as error:
            self.error = error
            return []

    def _next(self, records: Mapping[str, Any], errors: Mapping[str, BaseException]) -> list[Stage]:
        self._settle(records, errors)
        chosen = self.searcher.next()
        if chosen is None:
            return []
        trial = self.trials.trial(chosen)
        if not self.limits.allow(lambda: self.trials.hours([*self.begun, trial])):
            console.print(f"no further trial: {trial.words} would cost more than the sweep may")
            self.searcher = Listed([])
            return []
        self.note(chosen.point)
        self._begin(trial)
        return trial.lasts

    def _begin(self, trial: Trial) -> None:
        self.begun.append(trial)
        self.going.append(trial)
        there = self.tracker.records.found(trial.lasts)
        self.fresh |= {stage.fingerprint: stage for stage in trial.trained if stage.fingerprint not in there}
        root = self.trials.flow.execution.root
        note(root, self.tracker.name, [last for one in self.begun for last in one.lasts], key=self.tracker.key)
        for training, stages in trial.stages.items():
            words = {"row": trial.words, "task": short_name(training.task), "seed": training.seed}
            self.tracker.label(stages.last, recipe_words(training.recipe), **words)

    def _settle(self, records: Mapping[str, Any], errors: Mapping[str, BaseException]) -> None:
        """Record the trials that have ended, and print a line for each."""
        for trial in list(self.going):
            failed = any(key in errors for key in trial.key)
            if not (failed or all(key in records for key in trial.key)):
                continue
            self.going.remove(trial)
            result = {**trial.labels, "dev": None} if failed else self.trials.result(trial, self.tracker)
            self.results[trial.key] = result
            self.searcher.tell(trial.chosen, result["dev"])
            said = "failed" if failed else f"dev {result['dev']:.2f}"
            console.print(escape(f"trial {len(self.begun) - len(self.going)}: {trial.words}: {said}"))
            for last in trial.lasts if failed else ():
                self.tracker.end(last, "FAILED")

    def remember(self, points: Sequence[Point]) -> None:
        """Count points that are recorded as trials of the sweep."""
        for point in points:
            trial = self.trials.trial(Chosen(point))
            self.begun.append(trial)
            self.results[trial.key] = self.trials.result(trial, self.tracker)

    def table(self) -> list[dict[str, Any]]:
        """Return a mapping per point, of its longest training; a training that was stopped early has no dev score."""
        rows: dict[str, dict[str, Any]] = {}
        for trial in self.begun:
            if (row := self.results.get(trial.key)) is None:
                continue
            if trial.chosen.share < 1 and row["dev"] is not None:
                row = {**trial.labels, "dev": None, "stopped_step": trial.steps, "stopped_dev": row["dev"]}
            rows[words_of(trial.labels)] = row | {"fingerprint": trial.key[0][:12]}
        return list(rows.values())

    def swept(self) -> Swept:
        """Return the result; the best of equal trials is the first that was trained to the end."""
        done = [trial for trial in self.begun if trial.chosen.share == 1 and self.results.get(trial.key)]
        best = max(done, key=lambda trial: self._dev(trial))
        return Swept(
            trials=self.table(),
            best={task: self.trials.recipe(task, best.chosen) for task in self.trials.bases},
            result=self.results[best.key],
            steps=sum(trial.steps for trial in self.begun),
        )

    def _dev(self, trial: Trial) -> float:
        dev = self.results[trial.key]["dev"]
        return -math.inf if dev is None else dev


def sweep(
    trials: Trials,
    *,
    name: str,
    out: str,
    search: Search = "grid",
    limits: Limits = Limits(),
    warm_start: bool = False,
    tracking_uri: str = "",
) -> Swept:
    """Train points of a space on every task and seed; the script has called `ray.init()`.

    search: "grid" trains all points, "random" draws some, "asha" stops all but the best early, "optuna" uses TPE.
    Tables and a figure go under the location `out`, named after the sweep. warm_start: recorded trials of the same
    space are passed to Optuna. dev is None for a failed trial and for one that was stopped early, which has
    stopped_step and stopped_dev. RuntimeError if no trial finished.
    """
    started = time.monotonic()
    check_name(name)
    points = points_of(trials, search, limits)
    journal = Journal(trials, search)
    flow, tracker = opened(name, trials.flow, tracking_uri, key=journal.key)
    trials = replace(trials, flow=flow)
    feed = _feed(trials, points, search, limits, tracker, journal, warm_start)
    try:
        check_starts(trials.bases.values(), flow.execution)
        error = _made(feed, [] if search == "optuna" else points) or feed.error
        if not any(result["dev"] is not None for result in feed.table()):
            if feed.error:
                raise feed.error
            raise RuntimeError(f"sweep {name}: no trial finished") from error
    except BaseException:
        tracker.fail()
        raise
    console.print(_costs(feed, time.monotonic() - started))
    laid_out = {training: stages for trial in feed.begun for training, stages in trial.stages.items()}
    story = Teller(stages=laid_out, records=tracker.records).story(flow.execution.compute)
    files = publish_sweep(name, feed.table(), out, parameters=trials.space.names, story=story)
    tracker.attach(files.values())
    found = feed.swept()
    tracker.finish({"best_dev": found.result["dev"]})
    if feed.error:
        raise feed.error
    return found


def points_of(trials: Trials, search: Search, limits: Limits) -> list[Point]:
    """Return the points of a search; for optuna as many random points, to estimate its cost."""
    if search in ("random", "optuna") and not limits.trials:
        raise ValueError(f"--search {search} needs --trials N")
    drawn = search in ("random", "optuna") or (search == "asha" and limits.trials)
    points = trials.distinct(trials.space.draws(DRAWS) if drawn else trials.space.points())
    return list(itertools.islice(points, limits.trials or None))


def _feed(
    trials: Trials,
    points: Sequence[Point],
    search: Search,
    limits: Limits,
    tracker: "Tracker",
    journal: Journal,
    warm_start: bool,
) -> _Feed:
    if search != "optuna":
        searcher: Searcher = Halving(points) if search == "asha" else Listed(points)
        return _Feed(trials=trials, searcher=searcher, limits=limits, tracker=tracker, note=journal.add)
    known = list(trials.distinct(journal.recorded())) if warm_start else []
    nobody: Searcher = Listed([])
    feed = _Feed(trials=trials, searcher=nobody, limits=limits, tracker=tracker, note=journal.add)
    feed.remember(known)
    feed.searcher = Suggested(
        trials.space,
        count=limits.trials,
        seed=DRAWS,
        key=trials.key,
        known=[(point, feed.results[trials.key(point)]["dev"]) for point in known],
        first=journal.points,
    )
    return feed


def _made(feed: _Feed, points: Sequence[Point]) -> Exception | None:
    """Make the stages that points share, then all trials; return the first error of a failed trial."""
    run = feed.trials.flow.execution
    lasts = [stage for point in points for stage in feed.trials.trial(Chosen(point)).lasts]
    shared = [stage for stage in unique(lasts) if stage.lane == "data"]
    try:
        make(
            shared,
            run.root,
            side_by_side=run.side_by_side,
            overlap=run.compute.apart,
            watch=feed.tracker.close,
            known=feed.tracker.records,
            more=feed.more,
        )
    except Exception as error:
        return error
    return None


def _costs(feed: _Feed, wall_s: float) -> str:
    """Return a line about the sweep's time, and how much of it was not training."""
    run = feed.trials.flow.execution
    records = [record for stage in feed.fresh.values() if (record := feed.tracker.records.of(stage))]
    trained = sum(record["facts"]["seconds"] for record in records)
    beside = sum(record["seconds"] for record in records) - trained
    count = sum(any(stage.fingerprint in feed.fresh for stage in trial.trained) for trial in feed.begun)
    return (
        f"{len(feed.results)} trials ({count} trained now, {len(feed.results) - count} reused) in {wall_s:.0f} s: "
        f"{trained:.0f} s of training, {run.side_by_side} side by side: {trained / run.side_by_side:.0f} s; "
        f"start-up per trial {beside / max(1, count):.1f} s; {sum(trial.steps for trial in feed.begun):,} steps"
    )


def trainings_of(trials: Trials, points: Sequence[Point], search: Search) -> list[Training]:
    """Return the trainings of points, for asha those of the lowest rung; for plans."""
    share = Halving(points).shares[0] if search == "asha" else 1.0
    return [training for point in points for training in trials.trial(Chosen(point, share)).stages]


def show_sweep(trials: Trials, *, search: Search, limits: Limits, why: bool = False) -> None:
    """Print what a sweep would make and cost, or why (`why`); needs no cluster."""
    trainings = trainings_of(trials, points_of(trials, search, limits), search)
    (show_reasons if why else show_plan)(trainings, trials.flow, last=lambda stages: stages.trained[-1])
    if search == "asha":
        console.print(
            "estimate of the lowest rung of successive halving; each of the two above takes at most as many steps"
        )
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
