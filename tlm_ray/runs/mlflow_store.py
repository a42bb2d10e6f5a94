"""MLflow's client, as far as it is used here: runs of an experiment, and what they are told. Alone imports mlflow."""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, cast

import mlflow
from google.protobuf.json_format import ParseError
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils as database
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from tlm_ray import storage
from tlm_ray.runs import tracked
from tlm_ray.runs.tracked import Source

ENTRIES = 100  # of a history per request: MLflow takes 1,000 metrics, an entry has at most 9
PARAMETERS = 100  # MLflow takes so many per request
LONGEST = {"parameter": 6000, "tag": 8000, "digest": 36}  # characters that it takes
# By default a client tries 8 times, 120 s each, with pauses that double: a training would wait for minutes.
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "PGCONNECT_TIMEOUT": "5",
}
# What MLflow's client raises for a server or a database that is away, refuses or answers nonsense. The errors of
# `requests` are OSErrors; a JSON answer of other types than MLflow's is a ParseError.
AWAY = (MlflowException, OSError, ParseError, SQLAlchemyError)
ANSWER_S = 20.0  # for each call of a server, the upload of a page included
KIND = {"mlflow.experimentKind": "custom_model_development"}  # MLflow's pages open on runs, not on conversations
MODEL, REGISTERED = "model", "registered_model"  # tags of a run
RUNNING, FINISHED = "RUNNING", "FINISHED"


class Store:
    """The runs of one experiment in an MLflow store. Any method raises one of AWAY when the store is not there."""

    def __init__(self, uri: str, experiment: str = ""):
        for name, value in QUIET.items():  # in each process: Ray's were started before the driver's settings
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # they report each table of a fresh store
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri, self.name = uri, experiment

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client; opening it makes a database where there is none, and refuses a store of files."""
        database.MAX_RETRY_COUNT = 1  # of 10, with pauses that double: 100 s for a database that is away
        client = MlflowClient(self.uri)
        return cast(MlflowClient, _Bounded(client)) if self.uri.startswith("http") else client

    @cached_property
    def experiment(self) -> str:
        """The experiment's id, made if it is not there."""
        found = self.client.get_experiment_by_name(self.name)
        return found.experiment_id if found else self.client.create_experiment(self.name, tags=KIND)

    def runs(self, **tags: str) -> list[Run]:
        """Find the runs with these tags that are not deleted, the newest first; tags: "" for any value."""
        words = (f"tags.`{name}` {f'= {value!r}' if value else '!= ' + repr('')}" for name, value in tags.items())
        condition = " and ".join(words)
        found = self.client.search_runs([self.experiment], condition)
        runs = list(found)
        while found.token:
            found = self.client.search_runs([self.experiment], condition, page_token=found.token)
            runs += found
        return runs

    def run(self, name: str, tags: Mapping[str, str]) -> Run:
        """Open a new run."""
        return self.client.create_run(self.experiment, run_name=name, tags=dict(tags))

    def reopen(self, run: Run) -> None:
        """Let a run go on that was ended."""
        if run.info.status != RUNNING:
            self.client.update_run(run.info.run_id, status=RUNNING)

    def end(self, run: str, status: str) -> None:
        """End a run, FINISHED, FAILED or KILLED; one that ended so before keeps its time."""
        if self.client.get_run(run).info.status != status:
            self.client.set_terminated(run, status)

    def log_parameters(self, run: Run, parameters: Mapping[str, str]) -> None:
        """Log the parameters that a run does not have: MLflow refuses a second value."""
        known = run.data.params
        fresh = [Param(name, text[: LONGEST["parameter"]]) for name, text in parameters.items() if name not in known]
        for start in range(0, len(fresh), PARAMETERS):
            self.client.log_batch(run.info.run_id, params=fresh[start : start + PARAMETERS])

    def log_numbers(self, run: str, numbers: Mapping[str, float]) -> None:
        """Log the numbers that a run does not have, or has otherwise."""
        known = self.client.get_run(run).data.metrics
        fresh = [metric for metric in _metrics(numbers, step=0) if known.get(metric.key) != metric.value]
        self.client.log_batch(run, metrics=fresh)

    def last_step(self, run: str, prefix: str) -> int:
        """Return the last step of a stage that a run has, 0 for none."""
        found = self.client.get_metric_history(run, f"{prefix}/learning_rate")
        return max((metric.step for metric in found), default=0)

    def log_history(self, run: str, prefix: str, history: Sequence[Mapping[str, float]], *, after: int) -> None:
        """Log the entries of a stage's history that come after a step; an entry is logged whole or not at all."""
        fresh = [entry for entry in history if entry["step"] > after]
        for start in range(0, len(fresh), ENTRIES):
            points: list[Metric] = []
            for entry in fresh[start : start + ENTRIES]:
                values = {f"{prefix}/{name}": value for name, value in entry.items() if name != "step"}
                points += _metrics(values, step=int(entry["step"]))
            self.client.log_batch(run, metrics=points)

    def log_sources(self, run: str, sources: Sequence[Source], root: str) -> None:
        """Log the data that a run read, as a reference to where its stage keeps it."""
        if sources:
            self.client.log_inputs(run, [_dataset(source, root) for source in sources])

    def log_file(self, run: str, uri: str) -> None:
        """Log a file as an artifact; a Markdown file becomes the run's description too."""
        with storage.file_for_reading(uri) as path:
            self.client.log_artifact(run, str(path))
            if uri.endswith(".md"):
                text = storage.read_bytes(str(path)).decode()[: LONGEST["tag"]]
                self.client.set_tag(run, "mlflow.note.content", text)

    def log_model(self, run: Run, folder: str, *, register: str = "") -> None:
        """Log a classifier's folder to a run, and register it under a name if one is given; both once."""
        tags, run_id = run.data.tags, run.info.run_id
        mlflow.set_tracking_uri(self.uri)  # models are handed over by functions of the module
        model = tags.get(MODEL)
        if model is None:
            model = _log_model(run_id, folder)
            self.client.set_tag(run_id, MODEL, model)
        if register and tags.get(REGISTERED) != register:
            mlflow.register_model(model, register)
            self.client.set_tag(run_id, REGISTERED, register)

    def monitor(self, run: Run) -> SystemMetricsMonitor | None:
        """Follow this machine in a run, where MLflow's own setting asks for it."""
        if not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
            return None
        monitor = SystemMetricsMonitor(run.info.run_id, resume_logging=True, tracking_uri=self.uri)
        monitor.start()
        return monitor


class _Bounded:
    """A client whose every answer comes within a time, or is given up: a server that drips outlasts each timeout."""

    def __init__(self, client: MlflowClient):
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self.client, name))

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        answer: Future[Any] = Future()

        def call() -> None:
            try:
                answer.set_result(method(*arguments, **options))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {ANSWER_S:g} s") from None


def _log_model(run: str, folder: str) -> str:
    """Log a classifier in the transformers flavour and return its URI.

    A pipeline, because MLflow 3.17 cannot read a folder with transformers 5; its requirements are named, because those
    that MLflow looks for include torchvision, which nothing here needs.
    """
    import torch
    import transformers

    logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)  # it looks for a card of the folder on the hub
    transformers.utils.logging.disable_progress_bar()
    with storage.folder_for_reading(folder) as path:
        logged = mlflow.models.Model.log(
            None,
            mlflow.transformers,
            name="model",
            run_id=run,
            transformers_model=transformers.pipeline("text-classification", model=str(path)),
            task="text-classification",
            model_config={"truncation": True},  # a text may be longer than the model's positions
            pip_requirements=[f"{one.__name__}=={one.__version__.partition('+')[0]}" for one in (transformers, torch)],
        )
    return logged.model_uri


def _metrics(values: Mapping[str, float], *, step: int) -> list[Metric]:
    """Return numbers as MLflow takes them; it refuses names with other characters than these."""
    now = mlflow.utils.time.get_current_time_millis()
    return [Metric(_name(name), float(value), now, step) for name, value in values.items()]


def _name(text: str) -> str:
    return " ".join(re.sub(r"[^\w\-. /]", " ", text).split())


def _dataset(source: Source, root: str) -> DatasetInput:
    dataset = Dataset(
        name=source.name,
        digest=source.digest[: LONGEST["digest"]],
        source_type="local" if storage.is_local(root) else "uri",
        source=json.dumps({"uri": storage.shown(storage.join(root, source.folder))}),
        profile=json.dumps(tracked.amounts(source, root)),
    )
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", source.context)])
