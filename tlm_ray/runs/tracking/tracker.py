"""Track experiments in MLflow: a parent run per experiment, a child run per training.

Tracking never fails a run. If the server is unreachable, one line says so, and the work continues; every number is in
the records. Missing numbers are sent when the experiment ends, or by its next run, in the same parent run.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from rich.markup import escape

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.runs.stages.provenance import git, shown_command
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, fingerprint_of
from tlm_ray.runs.tracking.mlflow_store import AWAY, FINISHED, Run, Store, SystemMetricsMonitor
from tlm_ray.runs.tracking.tracked import Tracked, history, is_complete, shared_parameters, totals
from tlm_ray.training.progress import Follower

PARENT, KEY = "mlflow.parentRunId", "training_key"  # tags of a training's MLflow run
AGAIN_S = 60.0  # after which an unreachable server is tried again
TRAININGS = "trainings_key"  # key of an experiment's run: the same trainings under the same root are one run


def default_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite store in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


class Tracker:
    """The MLflow runs of an experiment and its trainings.

    root: the location of the stages. key: distinguishes experiments of the same name; "" means their trainings, which
    must all be labelled before the first begins. Repeating an experiment continues its run.
    """

    def __init__(self, name: str, uri: str, root: str, key: str = ""):
        self.name, self.uri, self.root, self.key = name, _absolute(uri), root, key
        self.records = Records(root)
        self.parent, self.alive = "", True
        self.trainings: dict[str, Tracked] = {}
        self.complete: set[str] = set()  # keys of trainings whose numbers are all in the store
        self.followed: dict[str, str] = {}  # open runs of trainings in this process, by key
        self.monitor: SystemMetricsMonitor | None = None
        self.said = False
        self.lock = threading.RLock()

    @cached_property
    def store(self) -> Store:
        """The location of the MLflow store."""
        return Store(self.uri, self.name)

    @classmethod
    def start(cls, name: str, *, uri: str, root: str, key: str = "") -> "Tracker":
        """Create the store and the experiment once, before anything runs in parallel."""
        tracker = cls(name, uri, root, key)
        tracker._try(lambda: tracker.store.experiment)
        return tracker

    def _try(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Call the server, one thread at a time; if it is unreachable, print one line and stop tracking."""
        with self.lock:
            if not self.alive:
                return None
            try:
                return action(*arguments)
            except AWAY as error:
                self.alive = False
                self._say(error)
                return None

    def _say(self, error: Exception) -> None:
        if not self.said:
            console.print(
                f"[yellow]tracking[/] {_words(self.uri, error)}; continuing without it. Records have all numbers, "
                "and the next run of this experiment sends missing ones"
            )
        self.said = True

    def label(self, last: Stage, parameters: Mapping[str, Any] | None = None, **words: Any) -> None:
        """Name a training, given by its last stage, by row, task and seed.

        parameters: further parameters of its run.
        """
        one = Tracked.of(last, words, parameters or {})
        self.trainings[one.key] = one

    def _of(self, last: Stage) -> list[Tracked]:
        """List the trainings with this last stage; an unnamed one gets the stage's name."""
        named = [one for one in self.trainings.values() if one.last == last.fingerprint]
        return named or [Tracked.of(last, {}, {})]

    def _begin(self) -> None:
        """Open the experiment's run: the earlier one of the same trainings, or a new one."""
        if self.parent:
            return
        key = fingerprint_of({"root": self.root, "trainings": self.key or sorted(self.trainings)})
        before = self.store.runs(**{TRAININGS: key}) if self.key or self.trainings else []
        run = before[0] if before else self.store.run(self.name, _origin() | {TRAININGS: key})
        self.parent = run.info.run_id
        if run.info.status != FINISHED:
            self.store.reopen(run)
            self.monitor = self.store.monitor(run)
        if before:
            self._learn()
        if not self.key:
            self._describe(run)

    def _describe(self, run: Run) -> None:
        """Log the shared parameters once all trainings are known, because MLflow refuses a second value."""
        if self.trainings:
            self.store.log_parameters(run, shared_parameters(list(self.trainings.values())))

    def _learn(self) -> None:
        """Look up the trainings whose numbers are all in the store."""
        self.complete |= {run.data.tags[KEY] for run in self._children() if run.info.status == FINISHED}

    def _children(self, key: str = "") -> list[Run]:
        """Find the runs of a training, or of all, newest first."""
        return self.store.runs(**{PARENT: self.parent, KEY: key})

    def followers(self, stage: Stage) -> list[Follower]:
        """Open or reopen a training's run, and return a follower for a stage of it.

        A stage shared by several trainings is followed in one of them; the others get its history when they end.
        """
        logger = self._try(self._follow, stage)
        return [logger] if logger else []

    def _follow(self, stage: Stage) -> "StepLogger | None":
        self._begin()
        sharing = [one for one in self.trainings.values() if stage.fingerprint in one.prefixes] or self._of(stage)
        one = next((one for one in sharing if one.key not in self.complete), None)
        if one is None:
            return None
        run, prefix = self._open(one), one.prefixes[stage.fingerprint]
        return StepLogger(self.uri, run, prefix, self.store.last_step(run, prefix))

    def _open(self, one: Tracked) -> str:
        """Return a training's run: its earlier one, reopened, or a new one."""
        before = self._children(one.key)
        run = (
            before[0]
            if before
            else self.store.run(one.name, {PARENT: self.parent, KEY: one.key} | one.tags | _origin())
        )
        self.store.reopen(run)
        self.store.log_parameters(run, one.parameters)
        self.followed[one.key] = run.info.run_id
        return run.info.run_id

    def close(self, stage: Stage, record: Mapping[str, Any]) -> None:
        """Complete the runs of the trainings with this last stage, whether made now or reused."""
        for one in self._of(stage):
            if one.key in self.trainings or one.key in self.followed:
                self._try(self._complete, one)

    def _complete(self, one: Tracked) -> None:
        """Send the missing numbers of a complete training."""
        self._begin()
        if one.key in self.complete:
            return
        run = self.followed.get(one.key) or self._open(one)
        for prefix, entries in history(one, self.records).items():
            self.store.log_history(run, prefix, entries, after=self.store.last_step(run, prefix))
        self.store.log_numbers(run, totals(one, self.records))
        self.store.log_sources(run, one.sources, self.records)
        self.store.end(run, FINISHED)
        self.complete.add(one.key)
        self.followed.pop(one.key, None)

    def end(self, stage: Stage, status: str) -> None:
        """End the runs of trainings whose last stage was abandoned by any process, as FAILED or KILLED."""
        for one in self._of(stage):
            self.followed.pop(one.key, None)
            self._try(self._give_up, one, status)

    def _give_up(self, one: Tracked, status: str) -> None:
        self._begin()
        for run in self._children(one.key):
            self.store.end(run.info.run_id, status)

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Send missing numbers of complete trainings, and the experiment's own.

        An unreachable server is tried once more.
        """
        self.alive = True
        self._try(self._finish, metrics)
        self._stop_monitor()

    def _finish(self, metrics: Mapping[str, float]) -> None:
        self._begin()
        self._learn()
        for one in self.trainings.values():
            if is_complete(one, self.records):
                self._complete(one)
        self._describe(self.store.client.get_run(self.parent))
        sources = dict.fromkeys(source for one in self.trainings.values() for source in one.sources)
        self.store.log_sources(self.parent, list(sources), self.records)
        self.store.log_numbers(self.parent, metrics)
        self.store.end(self.parent, FINISHED)

    def fail(self) -> None:
        """Mark the experiment's run and all runs open in this process as failed."""
        for run in [*self.followed.values(), *([self.parent] if self.parent else [])]:
            self._try(self.store.end, run, "FAILED")
        self._stop_monitor()

    def _stop_monitor(self) -> None:
        if self.monitor is not None:
            self.monitor.finish()
            self.monitor = None

    def attach(self, artifacts: Iterable[str]) -> None:
        """Log files to the experiment's run, even if ended; a Markdown file also becomes its description."""
        for uri in artifacts:
            self._try(self._attach, uri)

    def _attach(self, uri: str) -> None:
        self._begin()
        self.store.log_file(self.parent, uri)

    def log_model(self, last: Stage, folder: str, *, register: str = "") -> None:
        """Log a training's model to its run in MLflow's transformers flavour; register: a name to register it under.

        folder: opens as AutoModelForSequenceClassification. A model that is already logged or registered stays
        unchanged.
        """
        self._try(self._log_model, self._of(last)[0], folder, register)

    def _log_model(self, one: Tracked, folder: str, register: str) -> None:
        self.store.log_model(self._children(one.key)[0], folder, register=register)


class StepLogger:
    """Logs a training's history as it grows.

    If the server is unreachable, it prints one line and retries later. `Tracker` sends missing entries when the
    training ends.
    """

    def __init__(self, uri: str, run: str, prefix: str, logged: int):
        self.store, self.run, self.prefix, self.logged = Store(uri), run, prefix, logged
        self.not_before, self.said = 0.0, False

    def __call__(self, history: Sequence[Mapping[str, float]]) -> None:
        """Send the history entries since the last call."""
        if not history or time.monotonic() < self.not_before:
            return
        try:
            self.store.log_history(self.run, self.prefix, history, after=self.logged)
            self.logged = int(history[-1]["step"])
        except AWAY as error:
            self.not_before = time.monotonic() + AGAIN_S
            if not self.said:
                words = _words(self.store.uri, error)
                console.print(f"[yellow]tracking[/] {words}; {self.prefix}'s steps are sent once it is reachable again")
            self.said = True


def _words(uri: str, error: Exception) -> str:
    """Return a line, without credentials, on which store is unreachable and why."""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return escape(storage.shown(f"{uri}: {why}"))


def _absolute(uri: str) -> str:
    """Make a SQLite path absolute, so that it is valid in every process."""
    prefix = "sqlite:///"
    return prefix + storage.absolute(uri.removeprefix(prefix)) if uri.startswith(prefix) else uri


@cache
def _origin() -> dict[str, str]:
    """Return tags with the command and, in a checkout, the git commit."""
    tags = {"command": shown_command(sys.argv), "mlflow.source.name": os.path.basename(sys.argv[0])}
    head = git("rev-parse", "HEAD")
    return tags | {"mlflow.source.type": "LOCAL"} | ({"mlflow.source.git.commit": head} if head else {})
