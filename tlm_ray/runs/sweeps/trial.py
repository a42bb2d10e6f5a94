"""What a trial of Ray Tune runs: the stages of its point, in its own process, reporting each evaluation on dev."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray import tune

from tlm_ray import parallel, storage
from tlm_ray.compute import Compute
from tlm_ray.process import tune_torch
from tlm_ray.runs.planning.plan import worker_hours
from tlm_ray.runs.stages.locks import StageLocked
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage
from tlm_ray.runs.sweeps.searches import EVALUATION
from tlm_ray.runs.sweeps.trials import Trial, Trials

DONE = "trained"  # in a report: 1 once the result is recorded
TRAINING = "training"  # in a report: the fingerprint of the stage that trains
CHARGED = "charged"  # in a report: the hours of each training stage, by fingerprint, because trials share stages
ON_HEAD = {"node:__internal_head__": 0.001}


def needs(compute: Compute) -> Any:
    """Return what a trial asks Ray for: a worker's resources, or a place on the head if it only waits for workers.

    CPUs of the second kind would be missing to its workers.
    """
    return dict(compute.resources) if compute.workers == 1 else tune.PlacementGroupFactory([ON_HEAD])


def run_trial(config: Mapping[str, Any], *, trials: Trials, share: float = 1.0) -> None:
    """Make a point's stages, reuse those that are cached, and report its dev score.

    config: the point, by its labels. A result that another job is making is waited for. What every retry would meet
    again is reported as an error with a dev score of NaN; a lost process or node is Ray Tune's to retry.
    """
    tune_torch()
    run = trials.flow.execution
    is_here = run.compute.workers == 1
    reports, records = _Reports(run.compute), Records(run.root)
    execution = replace(run, compute=replace(run.compute, here=is_here))
    flow = replace(trials.flow, execution=execution, followers=reports.followers)
    point = trials.space.point(dict(config))
    assert point is not None, f"{config} is of another space"
    trial = replace(trials, flow=flow).trial(point, share)
    # on a machine of CPUs alone the trials hold them, so their data stages must not ask for another
    local = parallel.in_this_process if is_here and not run.compute.apart else contextlib.nullcontext
    try:
        with local():
            _make(trial, records, reports)
    except (OSError, ray.exceptions.RayError, StageLocked):  # of a store, a node or a lock: the next attempt may do
        raise
    except Exception as error:
        tune.report(reports.last() | {"dev": math.nan, "error": storage.shown(str(error)) or type(error).__name__})
        return
    tune.report(reports.last() | trials.score(trial, records) | {DONE: 1})


def _make(trial: Trial, records: Records, reports: "_Reports") -> None:
    """Make the trial's trainings one after another."""
    for stages in trial.stages.values():
        for stage in stages.trained:
            record = make([stage], records.root, wait_for_locks=True, known=records)[stage.fingerprint]
            reports.ended(stage, record)


class _Reports:
    """Tells Ray Tune each evaluation once, those of cached stages too, so that schedulers compare all trials."""

    def __init__(self, compute: Compute):
        self.compute = compute
        self.count = 0
        self.told: dict[str, int] = {}  # evaluations of a stage that were reported
        self.hours: dict[str, float] = {}  # of the stages so far
        self.steps = 0  # of the stages that ended
        self.started = time.monotonic()

    def followers(self, stage: Stage) -> list[Any]:
        """Return what is called with a stage's history while it trains."""
        self.started = time.monotonic()
        return [partial(self.tell, stage)]

    def tell(self, stage: Stage, history: Sequence[Mapping[str, float]]) -> None:
        """Report the evaluations that are new; a scheduler may end the trial within it."""
        self._report(stage, history, time.monotonic() - self.started)

    def _report(self, stage: Stage, history: Sequence[Mapping[str, float]], seconds: float) -> None:
        self.hours[stage.fingerprint] = worker_hours(seconds, self.compute)
        scored = [entry for entry in history if "dev" in entry]
        for entry in scored[self.told.get(stage.fingerprint, 0) :]:
            self.told[stage.fingerprint] = self.told.get(stage.fingerprint, 0) + 1
            self.count += 1
            tune.report(self._costs(int(entry["step"])) | {"dev": float(entry["dev"]), TRAINING: stage.fingerprint})

    def ended(self, stage: Stage, record: Mapping[str, Any]) -> None:
        """Report what is left of a stage that is recorded."""
        self._report(stage, record["facts"]["history"], record["facts"]["seconds"])
        self.steps += record["facts"]["steps"]

    def _costs(self, step: int) -> dict[str, Any]:
        hours = {"hours": sum(self.hours.values()), CHARGED: dict(self.hours)}
        return {EVALUATION: self.count, "steps": self.steps + step, **hours}

    def last(self) -> dict[str, Any]:
        """Return the costs of the whole trial, as a further evaluation."""
        self.count += 1
        return self._costs(0)
