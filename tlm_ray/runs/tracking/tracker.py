"""Track experiments in MLflow: a parent run per experiment, a child run per training.

`Tracker.sync` sends what the store lacks, and may be called at any time. It is called every minute while stages train,
and when a training ends. Tracking never fails a run: if the store is unreachable, one line says so, and a later sync,
or the experiment's next run, sends what is missing.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from rich.markup import escape

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.runs.stages.provenance import git, shown_command
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, fingerprint_of
from tlm_ray.runs.tracking.mlflow_store import AWAY, FINISHED, Run, Store, SystemMetricsMonitor
from tlm_ray.runs.tracking.tracked import Tracked, history, is_complete, shared_parameters, totals

SQLITE, STORE = "sqlite:///", "mlflow.db"
EVERY_S = 60.0  # between two syncs while stages train, and before an unreachable store is tried again
PARENT, KEY = "mlflow.parentRunId", "training_key"  # tags of a training's run
TRAININGS = "trainings_key"  # tag of an experiment's run: the same trainings under the same root are one run


def default_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite store in the working folder, of a submitted job in the home folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or SQLITE + storage.lasting(STORE, "--tracking-uri", STORE)


class Tracker:
    """The MLflow runs of an experiment and its trainings.

    root: the location of the stages. key: distinguishes experiments of the same name; "" means their trainings, which
    must all be labelled before the first begins. Repeating an experiment continues its run.
    """

    def __init__(self, name: str, uri: str, root: str, key: str = ""):
        self.name, self.root, self.key = name, root, key
        self.records, self.store = Records(root), Store(_absolute(uri), name)
        self.parent = ""
        self.trainings: dict[str, Tracked] = {}  # by key
        self.done: set[str] = set()  # keys of trainings that are recorded, as far as this process knows
        self.complete: set[str] = set()  # keys of those whose numbers are all in the store
        self.ended: dict[str, str] = {}  # how those ended that were given up, by key
        self.runs: dict[str, str] = {}  # open runs of trainings, by key
        self.live: dict[str, Sequence[Mapping[str, float]]] = {}  # histories of training stages, by fingerprint
        self.monitor: SystemMetricsMonitor | None = None
        self.next_sync, self.away_until, self.said = 0.0, 0.0, False
        self.lock = threading.RLock()

    @classmethod
    def start(cls, name: str, *, uri: str, root: str, key: str = "") -> "Tracker":
        """Create the store and the experiment once, before anything runs in parallel."""
        tracker = cls(name, uri, root, key)
        tracker._try(lambda: tracker.store.experiment)
        return tracker

    def label(self, last: Stage, parameters: Mapping[str, Any] | None = None, **words: Any) -> None:
        """Name a training, given by its last stage, by row, task and seed; parameters: of its run."""
        one = Tracked.of(last, words, parameters or {})
        self.trainings[one.key] = one

    def follow(self, stage: Stage, entries: Sequence[Mapping[str, float]]) -> None:
        """Take the history of a stage that trains; it is sent every minute."""
        self.live[stage.fingerprint] = list(entries)
        if time.monotonic() >= self.next_sync:
            self.sync()

    def close(self, stage: Stage, record: Mapping[str, Any]) -> None:
        """Complete the runs of the trainings with this last stage, whether made now or reused."""
        keys = {one.key for one in self._of(stage)}
        if keys - self.done:
            self.done |= keys
            self.sync()

    def end(self, stage: Stage, status: str) -> None:
        """End the runs of trainings whose last stage was abandoned by any process, as FAILED or KILLED."""
        self.ended |= {one.key: status for one in self._of(stage)}
        self.sync()

    def _of(self, last: Stage) -> list[Tracked]:
        return [one for one in self.trainings.values() if one.last == last.fingerprint]

    def sync(self) -> None:
        """Send what the store lacks of the trainings that are complete, train now, or were given up."""
        with self.lock:
            self.next_sync = time.monotonic() + EVERY_S
            self._try(self._sync)

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Send what the store lacks of all recorded trainings, and the experiment's own numbers."""
        self.away_until = 0.0
        everything = self.trainings.items()
        self.done |= {key for key, one in everything if key not in self.complete and is_complete(one, self.records)}
        self._try(self._finish, metrics)
        self._stop_monitor()

    def fail(self) -> None:
        """Mark the experiment's run and all runs that this process left open as failed."""
        for run in [*self.runs.values(), *([self.parent] if self.parent else [])]:
            self._try(self.store.end, run, "FAILED")
        self._stop_monitor()

    def attach(self, artifacts: Iterable[str]) -> None:
        """Log files to the experiment's run, even if ended; a Markdown file also becomes its description."""
        self._try(self._attach, artifacts)

    def log_model(self, last: Stage, folder: str, *, register: str = "") -> None:
        """Log a training's model to its run in MLflow's transformers flavour; register: a name to register it under.

        folder: opens as AutoModelForSequenceClassification. A model that is already logged or registered stays
        unchanged.
        """
        self._try(lambda: self.store.log_model(self._children(self._of(last)[0].key)[0], folder, register=register))

    def _try(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Call the store, one thread at a time; if it is unreachable, say so once and leave it alone for a while."""
        with self.lock:
            if time.monotonic() < self.away_until:
                return
            try:
                action(*arguments)
            except AWAY as error:
                self.away_until = time.monotonic() + EVERY_S
                self._say(error)

    def _say(self, error: Exception) -> None:
        if not self.said:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            console.print(
                f"[yellow]tracking[/] {escape(storage.shown(f'{self.store.uri}: {why}'))}; continuing without it. "
                "Records have all numbers, and missing ones are sent once it is reachable again"
            )
        self.said = True

    def _sync(self) -> None:
        self._begin()
        live = dict(self.live)
        for one in self.trainings.values():
            if one.key in self.ended:
                self._give_up(one)
            elif one.key not in self.complete:
                self._send(one, live)

    def _begin(self) -> None:
        """Open the experiment's run: the earlier one of the same trainings, or a new one."""
        if self.parent:
            return
        root = storage.without_credentials(self.root)
        key = fingerprint_of({"root": root, "trainings": self.key or sorted(self.trainings)})
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

    def _learn(self) -> None:
        """Look up the trainings whose numbers are all in the store."""
        self.complete |= {run.data.tags[KEY] for run in self._children() if run.info.status == FINISHED}

    def _describe(self, run: Run) -> None:
        """Log the shared parameters once all trainings are known, because MLflow refuses a second value."""
        if self.trainings:
            self.store.log_parameters(run, shared_parameters(list(self.trainings.values())))

    def _children(self, key: str = "") -> list[Run]:
        """Find the runs of a training, or of all, newest first."""
        return self.store.runs(**{PARENT: self.parent, KEY: key})

    def _send(self, one: Tracked, live: dict[str, Sequence[Mapping[str, float]]]) -> None:
        """Send a training that is recorded or trains; stages that others share are followed in the first of them."""
        own = {prefix: live.pop(stage) for stage, prefix in one.prefixes.items() if stage in live}
        is_done = one.key in self.done
        if not own and not is_done:
            return
        run = self.runs.get(one.key) or self._open(one)
        for prefix, entries in (own | history(one, self.records)).items():
            self.store.log_history(run, prefix, entries)
        if is_done:
            self.store.log_numbers(run, totals(one, self.records))
            self.store.log_sources(run, one.sources, self.records)
            self.store.end(run, FINISHED)
            self.complete.add(one.key)
            self._forget(one)

    def _open(self, one: Tracked) -> str:
        """Return a training's run: its earlier one, reopened, or a new one."""
        tags = {PARENT: self.parent, KEY: one.key} | one.tags | _origin()
        run = next(iter(self._children(one.key)), None) or self.store.run(one.name, tags)
        self.store.reopen(run)
        self.store.log_parameters(run, one.parameters)
        self.runs[one.key] = run.info.run_id
        return run.info.run_id

    def _give_up(self, one: Tracked) -> None:
        for run in self._children(one.key):
            self.store.end(run.info.run_id, self.ended[one.key])
        del self.ended[one.key]
        self._forget(one)

    def _forget(self, one: Tracked) -> None:
        self.runs.pop(one.key, None)
        for stage in one.prefixes:
            self.live.pop(stage, None)

    def _finish(self, metrics: Mapping[str, float]) -> None:
        self._begin()
        self._learn()
        self._sync()
        self._describe(self.store.client.get_run(self.parent))
        sources = dict.fromkeys(source for one in self.trainings.values() for source in one.sources)
        self.store.log_sources(self.parent, list(sources), self.records)
        self.store.log_numbers(self.parent, metrics)
        self.store.end(self.parent, FINISHED)

    def _attach(self, artifacts: Iterable[str]) -> None:
        self._begin()
        for uri in artifacts:
            self.store.log_file(self.parent, uri)

    def _stop_monitor(self) -> None:
        if self.monitor is not None:
            self.monitor.finish()
            self.monitor = None


def _absolute(uri: str) -> str:
    """Make a SQLite path absolute, so that it is valid in every process."""
    return SQLITE + storage.lasting(uri.removeprefix(SQLITE), "--tracking-uri") if uri.startswith(SQLITE) else uri


@cache
def _origin() -> dict[str, str]:
    """Return tags with the command and, in a checkout, the git commit."""
    tags = {"command": shown_command(sys.argv), "mlflow.source.name": os.path.basename(sys.argv[0])}
    head = git("rev-parse", "HEAD")
    return tags | {"mlflow.source.type": "LOCAL"} | ({"mlflow.source.git.commit": head} if head else {})
