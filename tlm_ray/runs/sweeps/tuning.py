"""Run the trials of a sweep with Ray Tune, and read how each ended."""

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tlm_ray import metrics, storage
from tlm_ray.runs.planning.plan import worker_hours
from tlm_ray.runs.recipes.space import Point
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.registry import Noted, note, noted
from tlm_ray.runs.stages.stage import unique
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

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

DRAWS = 0  # the seed of points drawn at random
MOST = 1_000  # maximum points of a grid to look up, or to make data stages for
RUNGS = (1 / REDUCTION**2, 1 / REDUCTION, 1.0)  # shares of the steps, of successive halving


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sweep's cost; when they are reached it ends, and a later run with higher ones continues it."""

    trials: int = 0
    """points to train; 0 for the whole grid"""
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


@dataclass(kw_only=True)
class Tuning:
    """A sweep under way."""

    trials: Trials
    key: str
    tracker: "Tracker"
    limits: Limits
    scheduler: Scheduler | TrialScheduler
    callbacks: Sequence[tune.Callback]
    begun: dict[str, Trial] = field(default_factory=dict)  # by their words
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # of trials that ended, likewise
    there: set[str] = field(default_factory=set)  # fingerprints of the trainings that were recorded before
    made: set[str] = field(default_factory=set)  # likewise, of those that its trials share
    steps: int = 0
    grid: tune.ResultGrid | None = None
    budget: Budget = field(init=False)
    earlier: list[Noted] = field(init=False)  # what former runs of the same sweep noted

    def __post_init__(self) -> None:
        self.earlier = [one for one in noted(self.root) if self.key in one.uri]
        self.budget = Budget(self.limits.worker_hours)
        for one in self.earlier:
            self.budget.charge(one.hours)

    @property
    def root(self) -> str:
        return self.trials.flow.execution.root

    def reuse(self, points: Sequence[Point], share: float = 1.0, *, own: bool = True) -> None:
        """Count points whose trainings are all recorded as trials of the sweep; own: this sweep tried them before."""
        for point in points:
            trial = replace(self.trials.trial(point, share), own=own)
            begin(self.begun, self.there, trial, self.trials, self.tracker, self.key)
            close(trial, self.tracker)
            self.rows[trial.words] = {**trial.labels, **self.trials.score(trial, self.tracker.records)}
            self.steps += trial.steps
            if own:
                compute = self.trials.flow.execution.compute
                seconds = {one.fingerprint: self.tracker.records.facts(one)["seconds"] for one in trial.trained}
                self.budget.charge({stage: worker_hours(own, compute) for stage, own in seconds.items()})

    def has_data(self, point: Point) -> bool:
        """Return whether the data stages of a point's trainings are all recorded."""
        stages = unique(self.trials.trial(point).lasts)
        return all(self.tracker.records.of(stage) is not None for stage in stages if stage.lane == "data")

    def fail(self, points: Sequence[Point], share: float = 1.0) -> None:
        """Count points that cannot be trained as failed trials of the sweep."""
        for point in points:
            trial = self.trials.trial(point, share)
            begin(self.begun, self.there, trial, self.trials, self.tracker, self.key)
            close(trial, self.tracker, "FAILED")
            self.rows[trial.words] = {**trial.labels, "dev": None}

    def count_stopped(self, points: Sequence[Point]) -> list[Point]:
        """Count those of the points that a scheduler stopped in a former run as trials, and return them."""
        ends = [(self.trials.space.point(end["point"]), end) for one in self.earlier for end in one.stopped]
        trials = {self.trials.trial(point).words: end for point, end in ends if point is not None}
        found = [point for point in points if self.trials.trial(point).words in trials]
        for point in found:
            trial = self.trials.trial(point)
            begin(self.begun, self.there, trial, self.trials, self.tracker, self.key)
            close(trial, self.tracker, "KILLED")
            self.there |= {stage.fingerprint for stage in trial.trained}  # nothing of it is trained now
            end = {name: trials[trial.words][name] for name in ("stopped_step", "stopped_dev")}
            self.rows[trial.words] = {**trial.labels, "dev": None, **end}
            self.steps += end["stopped_step"]
        return found

    def make_shared(self, points: Sequence[Point], share: float = 1.0) -> None:
        """Make the trainings that all points share, so that no trial holds a GPU while another makes one of them.

        Not within a budget of hours, which only Ray Tune's trials keep to.
        """
        trained = [self.trials.trial(point, share).trained for point in points]
        common = set.intersection(*({stage.fingerprint for stage in stages} for stages in trained))
        shared = [stage for stage in trained[0] if stage.fingerprint in common]
        run, records = self.trials.flow.execution, self.tracker.records
        fresh = [stage for stage in shared if records.of(stage) is None]
        if len(points) > 1 and fresh and math.isinf(self.budget.most):
            note(self.root, self.tracker.name, shared, key=self.key)  # as `begin` does, before they are made
            make(fresh, self.root, side_by_side=run.side_by_side, wait_for_locks=True, known=records)
            self.made |= {stage.fingerprint for stage in fresh}

    def train(self, points: Sequence[Point], share: float = 1.0) -> None:
        """Train the points of a list; where all are recorded or the budget is spent, Ray Tune has nothing to do."""
        trials = [self.trials.trial(point, share) for point in points]
        done = [trial.point for trial in trials if trial.is_done(self.tracker.records)]
        if self.budget.stop_all() or (isinstance(self.scheduler, str) and len(done) == len(points)):
            self.reuse(done, share)
            self.count_stopped([point for point in points if point not in done] if share == 1 else [])
            return
        self.make_shared(points, share)
        self.search(listed([dict(trial.labels) for trial in trials]), len(points), share)

    def search(self, searcher: Any, count: int, share: float = 1.0) -> None:
        """Train what a searcher suggests, and read how each trial ended."""
        metrics.STAGES_RUNNING.set(1, lane="sweep", stage="sweep", process="driver")
        try:
            self.grid = self._tuner(searcher, count, share).fit()
        finally:
            metrics.STAGES_RUNNING.set(0, lane="sweep", stage="sweep", process="driver")
        for result in map(self.grid.__getitem__, range(len(self.grid))):
            point = self.trials.space.point(result.config or {})
            assert point is not None, f"{result.config} is of another space"
            trial = self.trials.trial(point, share)
            if trial.words in self.begun:  # else the budget was spent before it
                self.rows[trial.words] = _row(trial, result)
                self.steps += (result.metrics or {}).get("steps", 0)
            elif result.error is not None:  # its process could not start
                self.fail([point], share)

    def _tuner(self, searcher: Any, count: int, share: float) -> tune.Tuner:
        run = self.trials.flow.execution
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
                # a further process takes 12 s, but one whose workers were stopped still waits for them
                reuse_actors=run.compute.workers == 1,
            ),
            run_config=tune.RunConfig(
                name=f"{self.tracker.name}-{self.key}",
                storage_path=path,
                storage_filesystem=filesystem,
                verbose=0,
                stop=self.budget,
                failure_config=tune.FailureConfig(max_failures=run.compute.max_failures),
                callbacks=[
                    Follow(self.trials, share, self.tracker, self.begun, self.there, self.key, self.budget),
                    *self.callbacks,
                ],
            ),
        )

    def _evaluations(self) -> int:
        """Return the most evaluations that a trial has."""
        return max(self.trials.trial(point).evaluations for point in self._drawn())

    def _drawn(self) -> list[Point]:
        return list(itertools.islice(self.trials.possible(self.trials.space.draws(DRAWS)), REDUCTION**2))

    def halve(self, points: Sequence[Point]) -> None:
        """Train all points for a ninth of the steps, the best third for a third, the best of those to the end.

        A rung with points that the budget left out is the last, because they have no score to be ranked by.
        """
        for share in RUNGS:
            self.train(points, share)
            if any(self.trials.trial(point, share).words not in self.rows for point in points):
                return
            ranked = sorted(points, key=lambda point: -self._dev(point, share))
            points = ranked[: max(1, len(points) // REDUCTION)]

    def suggest(self, search: Search | Searcher, warm_start: bool) -> None:
        """Train what a searcher suggests; points that this sweep tried before count as trials, or come first.

        warm_start: points that other jobs trained are told to the searcher too.
        """
        begun = [self.trials.space.point(labels) for one in self.earlier for labels in one.points]
        tried = [point for point in begun if point is not None]
        done = [point for point in tried if self.trials.trial(point).is_done(self.tracker.records)]
        others = list(self.trials.distinct(_recorded(self.trials, tried, self.tracker.records))) if warm_start else []
        self.reuse(others, own=False)
        self.reuse(done)
        left_over = [point for point in tried if point not in done]
        stopped = [] if self.scheduler == "none" else self.count_stopped(left_over)
        told = [(point, self._told(point)) for point in (*others, *done, *stopped)]
        if isinstance(search, str):
            known = [(self._labels(point), dev) for point, dev in told]
            search = optuna_search(seed=DRAWS, trials=self.limits.trials, known=known)
        scores = {self.trials.key_of(point): dev for point, dev in told}
        first = [self._labels(point) for point in left_over if point not in stopped]
        if (left := self.limits.trials - len(done) - len(stopped)) > 0 and not self.budget.stop_all():
            self.make_shared(self._drawn())
            self.search(Distinct(search, self.trials, known=scores, first=first), left)

    def _labels(self, point: Point) -> dict[str, Any]:
        return dict(self.trials.space.labels(point))

    def _dev(self, point: Point, share: float = 1.0) -> float:
        dev = self.rows[self.trials.trial(point, share).words]["dev"]
        return -math.inf if dev is None else dev

    def _told(self, point: Point) -> float:
        """Return what a searcher is told of a trial: its score, or the last one before it was stopped."""
        row = self.rows[self.trials.trial(point).words]
        return row.get("stopped_dev", row["dev"])

    def table(self) -> list[dict[str, Any]]:
        """Return a mapping per point, of its longest training; a training that was stopped early has no dev score."""
        table: dict[str, dict[str, Any]] = {}
        for words, row in self.rows.items():
            trial = self.begun[words]
            if trial.share < 1 and row["dev"] is not None:
                row = {**trial.labels, "dev": None, "stopped_step": trial.steps, "stopped_dev": row["dev"]}
            table[str(trial.labels)] = row | {"fingerprint": trial.key[0][:12]}
        return list(table.values())


def _row(trial: Trial, result: tune.Result) -> dict[str, Any]:
    """Return a trial's row; dev is None where it failed or was stopped."""
    found = result.metrics or {}
    if DONE in found:
        return {**trial.labels, **{name: found[name] for name in ("dev", "low", "high", *trial.tasks) if name in found}}
    is_stopped = result.error is None and is_number(found.get("dev"))
    stopped = {"stopped_step": found["steps"], "stopped_dev": found["dev"]} if is_stopped else {}
    return {**trial.labels, "dev": None, **stopped}


def _recorded(trials: Trials, own: Sequence[Point], records: Records) -> list[Point]:
    """Return points that other jobs trained: of a grid any sweep or table, of ranges other sweeps."""
    space = trials.space
    if space.is_grid:
        points = list(itertools.islice(space.points(), MOST))
    else:
        kept = [labels for one in noted(records.root) for labels in one.points]
        points = [point for labels in kept if (point := space.point(labels)) is not None]
    new = [point for point in points if point not in own and trials.refusal_of(point) is None]
    return [point for point in new if trials.trial(point).is_done(records)]
