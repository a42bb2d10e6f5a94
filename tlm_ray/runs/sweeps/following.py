"""Follow a sweep on Ray Tune: its MLflow runs, its entry in the registry, a line per trial, and its budget."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray import tune
from rich.markup import escape

from tlm_ray import events, ray_private, storage
from tlm_ray.console import console
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.runs.stages.registry import note
from tlm_ray.runs.stages.stage import Stage
from tlm_ray.runs.sweeps.searches import is_number
from tlm_ray.runs.sweeps.trial import CHARGED, DONE, TRAINING
from tlm_ray.runs.sweeps.trials import Trial, Trials
from tlm_ray.runs.tracking.tracked import recipe_words
from tlm_ray.training.loop.progress import NOTE

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

FREE_EVERY_S = 5.0
KEEP_EVERY_S = 60.0  # what a killed sweep forgets of its hours at most, because a note rewrites a file of the store


class Follow(tune.Callback):
    """Notes each trial of a sweep as it starts, reports and ends."""

    def __init__(
        self,
        trials: Trials,
        share: float,
        tracker: "Tracker",
        begun: dict[str, Trial],
        there: set[str],
        key: str,
        budget: "Budget",
    ):
        self.trials, self.share, self.tracker, self.key = trials, share, tracker, key
        self.begun, self.there, self.budget = begun, there, budget
        self.own: dict[str, Trial] = {}  # by Tune's ids
        self.ended, self.looked, self.kept = 0, 0.0, time.monotonic()

    def __reduce__(self) -> Any:
        """Be nothing in Ray Tune's own copy of a sweep, which is not needed: stages are its state."""
        return tune.Callback, ()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Name the trial's trainings in MLflow and note their stages, before they are made."""
        point = self.trials.space.point(trial.config)
        assert point is not None, f"{trial.config} is of another space"
        own = self.own[trial.trial_id] = self.trials.trial(point, self.share)
        begin(self.begun, self.there, own, self.trials, self.tracker, self.key)
        events.tell("trial begun", point=own.words)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Mapping[str, Any], **info: Any) -> None:
        """Send what a running training has noted of its steps."""
        for stage in self.own[trial.trial_id].trained:
            if stage.fingerprint == result.get(TRAINING):
                self._send(stage)
        if time.monotonic() > self.kept + KEEP_EVERY_S:
            self._keep()

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        """Keep the hours of all trials, also of those that the budget ended."""
        self._keep()

    def _keep(self, stopped: Sequence[Mapping[str, Any]] = ()) -> None:
        """Keep the hours so far, for the next run of the same sweep, and a point that a scheduler has stopped."""
        self.kept = time.monotonic()
        root, name = self.trials.flow.execution.root, self.tracker.name
        note(root, name, [], key=self.key, hours=self.budget.hours, stopped=stopped)

    def _send(self, stage: Stage) -> None:
        uri = storage.join(stage.folder(self.trials.flow.execution.root), NOTE)
        if history := storage.read_json(uri)["history"] if storage.exists(uri) else []:
            self.tracker.follow(stage, history)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Complete a trial's MLflow runs and print its score, or how it ended."""
        result = trial.last_result or {}
        is_done = DONE in result
        said = f"dev {result['dev']:.2f}" if is_done else f"stopped at evaluation {result.get('evaluation', 0)}"
        if "error" in result:
            said = f"failed: {result['error']}"
        self._end(trial, said, "" if is_done else "FAILED" if "error" in result else "KILLED")
        own = self.own.get(trial.trial_id)
        by_scheduler = not (is_done or "error" in result or self.budget.stop_all())
        if own is not None and own.share == 1 and by_scheduler and is_number(result.get("dev")):
            stopped = {"point": dict(own.labels), "stopped_step": result["steps"], "stopped_dev": result["dev"]}
            self._keep([stopped])

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Mark a trial's MLflow runs as failed."""
        self._end(trial, "failed", "FAILED")

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Free what the workers of stopped trials still hold; Ray learns after a stop that its process has ended."""
        has_workers = self.trials.flow.execution.compute.workers > 1
        if has_workers and time.monotonic() > self.looked + FREE_EVERY_S:
            self.looked = time.monotonic()
            ray_private.free_orphans()

    def _end(self, trial: Any, said: str, status: str) -> None:
        own = self.own.get(trial.trial_id)
        if own is None:  # its process could not start
            return
        self.ended += 1
        console.print(escape(storage.shown(f"trial {self.ended}: {own.words}: {said}")))
        events.tell("trial ended", point=own.words, how=said)
        close(own, self.tracker, status)


def begin(begun: dict[str, Trial], there: set[str], trial: Trial, trials: Trials, tracker: "Tracker", key: str) -> None:
    """Note a trial in the registry and name its trainings in MLflow.

    begun: all trials of the sweep, by their words. there: fingerprints of trainings that were recorded before it.
    """
    own = {stage.fingerprint for one in begun.values() for stage in one.trained}
    fresh = [stage for stage in trial.trained if stage.fingerprint not in own]
    there |= {stage.fingerprint for stage in fresh if tracker.records.of(stage) is not None}
    begun[trial.words] = trial
    every = list(begun.values())
    lasts = [last for one in every for last in one.lasts]
    points = [dict(one.labels) for one in every if one.share == 1 and one.own]
    note(trials.flow.execution.root, tracker.name, lasts, key=key, points=points)
    for training, stages in trial.stages.items():
        words = {"row": trial.words, "task": short_name(training.task), "seed": training.seed}
        tracker.label(stages.last, recipe_words(training.recipe), **words)


def close(trial: Trial, tracker: "Tracker", status: str = "") -> None:
    """Complete the MLflow runs of a trial's trainings; status: how those that are not recorded ended."""
    for last in trial.lasts:
        if (record := tracker.records.of(last)) is not None:
            tracker.close(last, record)
        else:
            tracker.end(last, status)


class Budget(tune.Stopper):
    """Ends a sweep whose trials, reused ones included, have cost as many worker hours as they may."""

    def __init__(self, hours: float):
        self.most, self.hours = hours, dict[str, float]()  # by fingerprints of stages, which trials share

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Count the hours of a trial's stages; no trial is stopped alone."""
        self.charge(result.get(CHARGED, {}))
        return False

    def charge(self, hours: Mapping[str, float]) -> None:
        """Count hours by stage; a trial that goes on with what another began knows only its own."""
        for stage, own in hours.items():
            self.hours[stage] = max(own, self.hours.get(stage, 0.0))

    def stop_all(self) -> bool:
        """Return whether the budget is spent."""
        return sum(self.hours.values()) >= self.most
