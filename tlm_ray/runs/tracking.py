"""MLflow: one parent run an experiment, one child run a training. The only module that imports mlflow.

Tracking only watches. If the server is away, one line says so and the work goes on; every number is in the records.
"""

import hashlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import mlflow
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from ray.train.v2.api.callback import UserCallback

from tlm_ray import storage
from tlm_ray.parallel import console
from tlm_ray.runs.stages import Stage

CHILD = "tracking.json"
BATCH = 900  # metrics a request; MLflow takes 1,000
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "GIT_PYTHON_REFRESH": "quiet",
}


def default_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite store in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


class Tracker:
    """An experiment's parent run and the children opened under it; travels to the processes of a sweep's trials."""

    def __init__(self, uri: str, experiment: str = "", parent: str = "", alive: bool = True):
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # they report each table of a fresh store
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri, self.experiment, self.parent, self.alive = _absolute(uri), experiment, parent, alive
        self.client = MlflowClient(self.uri)
        self.children: dict[str, str] = {}
        self.lock = threading.Lock()

    def __reduce__(self):
        return Tracker, (self.uri, self.experiment, self.parent, self.alive)

    @classmethod
    def start(cls, experiment: str, *, uri: str) -> "Tracker":
        """Make the store and the experiment once, before anything runs in parallel, and open the parent run."""
        tracker = cls(uri)
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
        except Exception as error:
            self.alive = False
            console.print(
                f"[yellow]tracking[/] {storage.shown(f'{self.uri}: {_first_line(error)}')}; "
                "going on without it, all numbers are in the records"
            )
            return None

    def callbacks(self, folder: str) -> list[UserCallback]:
        """Open the child run of a training (again, if it was interrupted) and return what follows it step by step."""
        with self.lock:
            child = self._try(self._child, folder)
        return [StepLogger(self.uri, *child)] if child else []

    def _child(self, folder: str) -> tuple[str, int]:
        """Return the training's run and the last step that it has."""
        uri = storage.join(folder, CHILD)
        store = hashlib.sha256(self.uri.encode()).hexdigest()  # a URI may hold a password
        known = storage.read_json(uri) if storage.exists(uri) else {}
        child, logged = self._reopened(known["run"]) if known.get("store") == store else ("", 0)
        if not child:
            stage, fingerprint = folder.rstrip("/").split("/")[-2:]
            tags = {"mlflow.parentRunId": self.parent, "stage": stage, "fingerprint": fingerprint} | _commit()
            name = f"{stage} {fingerprint[:8]}"
            child = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id
            storage.write_json(uri, {"store": store, "run": child})
        self.children[folder] = child
        return child, logged

    def _reopened(self, child: str) -> tuple[str, int]:
        """Take an interrupted training's run up again; ("", 0) if it was deleted."""
        try:
            self.client.update_run(child, status="RUNNING")
        except MlflowException:
            return "", 0
        steps = [metric.step for metric in self.client.get_metric_history(child, "learning_rate")]
        return child, max(steps, default=0)

    def close(self, stage: Stage, root: str, record: Mapping[str, Any]) -> None:
        """Complete the child run of a training that was made now: its recipe and its totals."""
        with self.lock:
            child = self.children.pop(stage.folder(root), None)
            if child:
                self._try(self._close, child, record)

    def _close(self, child: str, record: Mapping[str, Any]) -> None:
        facts = record["facts"]
        parameters = [Param(name, str(value)[:6000]) for name, value in _flat(record["recipe"]["parameters"])]
        totals = {k: v for k, v in facts.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        self.client.log_batch(child, params=parameters, metrics=_metrics(totals, step=facts.get("steps", 0)))
        self.client.set_terminated(child, "FINISHED")

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Log the experiment's numbers to the parent and end it."""
        self._try(self._finish, metrics)

    def _finish(self, metrics: Mapping[str, float]) -> None:
        self.client.log_batch(self.parent, metrics=_metrics(metrics, step=0))
        self.client.set_terminated(self.parent, "FINISHED")

    def attach(self, artifacts: Iterable[str]) -> None:
        """Log files to the parent, ended or not."""
        for uri in artifacts:
            self._try(self._attach, uri)

    def _attach(self, uri: str) -> None:
        folder, _, name = uri.rpartition("/")
        with storage.folder_for_reading(folder) as path:
            self.client.log_artifact(self.parent, str(path / name))

    def fail(self) -> None:
        """Mark the parent and all open children as failed."""
        for run in [*self.children.values(), self.parent]:
            self._try(self.client.set_terminated, run, "FAILED")


class StepLogger(UserCallback):
    """Logs a training's history as it grows; runs in Ray Train's controller, on the driver's node."""

    def __init__(self, uri: str, run: str, logged: int):
        self.uri, self.run, self.logged, self.alive = uri, run, logged, True

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """Send the entries since the last report."""
        fresh = [entry for entry in metrics[0]["history"] if entry["step"] > self.logged]
        if not fresh or not self.alive:
            return
        self.logged = fresh[-1]["step"]
        points = [
            m for entry in fresh for m in _metrics({k: v for k, v in entry.items() if k != "step"}, step=entry["step"])
        ]
        try:
            for start in range(0, len(points), BATCH):
                MlflowClient(self.uri).log_batch(self.run, metrics=points[start : start + BATCH])
        except Exception:
            self.alive = False


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
