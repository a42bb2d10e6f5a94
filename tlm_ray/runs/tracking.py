"""MLflow: one parent run per experiment, one child run per training. The only module that imports mlflow.

Tracking only watches. If the server is away, one line says so and the work goes on; every number is in the records.
"""

import hashlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import mlflow
from google.protobuf.json_format import ParseError
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from ray.train.v2.api.callback import UserCallback
from sqlalchemy.exc import SQLAlchemyError

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.runs.stages import Stage

CHILD = "tracking.json"
ENTRIES = 100  # of a history per request: MLflow takes 1,000 metrics, an entry has at most 9
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
# What MLflow's client raises for a server or a database that is away, refuses or answers nonsense. The errors of
# `requests` are OSErrors; a JSON answer of other types than MLflow's is a ParseError.
AWAY = (MlflowException, OSError, ParseError, SQLAlchemyError)
DELETED = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # a run: for good, or until it is restored


def default_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite store in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


class Tracker:
    """An experiment's parent run and the children opened under it; travels to the processes of a sweep's trials.

    root: the location of the stages. labels: what is said of a training beside its stage, by the stage's fingerprint.
    """

    def __init__(
        self,
        uri: str,
        root: str,
        experiment: str = "",
        parent: str = "",
        alive: bool = True,
        labels: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # they report each table of a fresh store
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri, self.root, self.experiment, self.parent, self.alive = _absolute(uri), root, experiment, parent, alive
        self.labels: dict[str, Mapping[str, Any]] = dict(labels or {})
        self.children: dict[str, str] = {}  # runs by fingerprint
        self.lock = threading.Lock()

    def __reduce__(self):
        return Tracker, (self.uri, self.root, self.experiment, self.parent, self.alive, self.labels)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client; opening it makes a database where there is none, and refuses a store of files."""
        return MlflowClient(self.uri)

    @classmethod
    def start(cls, experiment: str, *, uri: str, root: str) -> "Tracker":
        """Make the store and the experiment once, before anything runs in parallel, and open the parent run."""
        tracker = cls(uri, root)
        tracker._try(tracker._open, experiment)
        return tracker

    def _open(self, experiment: str) -> None:
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        self.parent = self.client.create_run(self.experiment, run_name=experiment, tags=_commit()).info.run_id

    def _try(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Do something with the server; when it is away, say so once and track no more."""
        if not self.alive:
            return None
        try:
            return action(*arguments)
        except AWAY as error:
            self.alive = False
            console.print(
                f"[yellow]tracking[/] {storage.shown(f'{self.uri}: {_first_line(error)}')}; "
                "going on without it, all numbers are in the records"
            )
            return None

    def label(self, last: Stage, **words: Any) -> None:
        """Name a stage's trainings by words of a reader's, such as row, task and seed; what is named keeps its name."""
        for stage in last.upstream():
            self.labels.setdefault(stage.fingerprint, words)

    def callbacks(self, stage: Stage) -> list[UserCallback]:
        """Open the child run of a training (again, if it was interrupted) and return what follows it step by step."""
        with self.lock:
            child = self._try(self._child, stage)
        return [StepLogger(self.uri, *child)] if child else []

    def _child(self, stage: Stage) -> tuple[str, int]:
        """Return the training's run and the last step that it has."""
        child, logged = self._reopened(self._noted(stage))
        if not child:
            labels = {name: str(value) for name, value in self.labels.get(stage.fingerprint, {}).items()}
            tags = {"mlflow.parentRunId": self.parent, "stage": stage.name, "fingerprint": stage.fingerprint[:20]}
            name = f"{stage.name} {stage.fingerprint[:8]} {', '.join(f'{k} {v}' for k, v in labels.items())}".strip()
            run = self.client.create_run(self.experiment, run_name=name, tags=labels | tags | _commit())
            child = run.info.run_id
            storage.write_json(self._note(stage), {"store": self._store, "run": child})
        self.children[stage.fingerprint] = child
        return child, logged

    def _note(self, stage: Stage) -> str:
        return storage.join(stage.folder(self.root), CHILD)

    @property
    def _store(self) -> str:
        return hashlib.sha256(self.uri.encode()).hexdigest()  # a URI may hold a password

    def _noted(self, stage: Stage) -> str:
        """Return the run that a training had in this store before; empty if it had none."""
        known = storage.read_json(self._note(stage)) if storage.exists(self._note(stage)) else {}
        return known["run"] if known.get("store") == self._store else ""

    def _reopened(self, child: str) -> tuple[str, int]:
        """Take an interrupted training's run up again; ("", 0) if there is none or it was deleted."""
        if not child:
            return "", 0
        try:
            self.client.update_run(child, status="RUNNING")
        except MlflowException as error:
            if error.error_code not in DELETED:
                raise
            return "", 0
        return child, self._logged(child)

    def _logged(self, child: str) -> int:
        """Return the last step that a run has."""
        return max((metric.step for metric in self.client.get_metric_history(child, "learning_rate")), default=0)

    def close(self, stage: Stage, record: Mapping[str, Any]) -> None:
        """Complete the child run of a training that was made now: its recipe, its totals, the steps that it lacks."""
        with self.lock:
            child = self.children.pop(stage.fingerprint, None)
            if child:
                self._try(self._close, child, record)

    def _close(self, child: str, record: Mapping[str, Any]) -> None:
        facts = record["facts"]
        parameters = [Param(name, str(value)[:6000]) for name, value in _flat(record["recipe"]["parameters"])]
        totals = {k: v for k, v in facts.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        _log(self.client, child, facts.get("history", []), after=self._logged(child))
        self.client.log_batch(child, params=parameters, metrics=_metrics(totals, step=facts.get("steps", 0)))
        self._end(child, "FINISHED")

    def end(self, stage: Stage, status: str) -> None:
        """End the child run of a training that was given up, in whatever process it was; FAILED or KILLED."""
        with self.lock:
            self.children.pop(stage.fingerprint, None)
            if child := self._noted(stage):
                self._try(self._end, child, status)

    def _end(self, run: str, status: str) -> None:
        self.client.set_terminated(run, status)

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Log the experiment's numbers to the parent and end it."""
        self._try(self._finish, metrics)

    def _finish(self, metrics: Mapping[str, float]) -> None:
        self.client.log_batch(self.parent, metrics=_metrics(metrics, step=0))
        self._end(self.parent, "FINISHED")

    def attach(self, artifacts: Iterable[str]) -> None:
        """Log files to the parent, ended or not."""
        for uri in artifacts:
            self._try(self._attach, uri)

    def _attach(self, uri: str) -> None:
        with storage.file_for_reading(uri) as path:
            self.client.log_artifact(self.parent, str(path))

    def fail(self) -> None:
        """Mark the parent and all open children as failed."""
        for run in [*self.children.values(), self.parent]:
            self._try(self._end, run, "FAILED")


class StepLogger(UserCallback):
    """Logs a training's history as it grows; runs in Ray Train's controller, on the driver's node.

    Nobody reads what a controller prints. When the server is away this stops; the driver's `Tracker.close` logs the
    steps that are missing, or says why it cannot.
    """

    def __init__(self, uri: str, run: str, logged: int):
        self.uri, self.run, self.logged, self.alive = uri, run, logged, True

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """Send the entries since the last report."""
        history = metrics[0]["history"]
        if not self.alive or not history:
            return
        try:
            _log(MlflowClient(self.uri), self.run, history, after=self.logged)
            self.logged = history[-1]["step"]
        except AWAY:
            self.alive = False


def _log(client: MlflowClient, run: str, history: Sequence[Mapping[str, float]], *, after: int) -> None:
    """Send the entries of a history that come after a step; an entry is sent whole or not at all."""
    fresh = [entry for entry in history if entry["step"] > after]
    for start in range(0, len(fresh), ENTRIES):
        points = [
            metric
            for entry in fresh[start : start + ENTRIES]
            for metric in _metrics({k: v for k, v in entry.items() if k != "step"}, step=int(entry["step"]))
        ]
        client.log_batch(run, metrics=points)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _metrics(values: Mapping[str, float], *, step: int) -> list[Metric]:
    """Return numbers as MLflow takes them; it refuses names with other characters than these."""
    now = mlflow.utils.time.get_current_time_millis()
    return [Metric(re.sub(r"[^\w\-. /]", "", name), float(value), now, step) for name, value in values.items()]


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for k, v in value.items() for pair in _flat(v, f"{name}.{k}" if name else k)]
    return [(name, value)]


def _absolute(uri: str) -> str:
    """Make a SQLite path mean the same in every process."""
    prefix = "sqlite:///"
    return prefix + storage.absolute(uri.removeprefix(prefix)) if uri.startswith(prefix) else uri


def _commit() -> dict[str, str]:
    """Return the git commit as a tag, if the working folder is a checkout."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"git_commit": found.stdout.strip()}
