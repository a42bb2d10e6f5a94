"""Wrap MLflow's client: find, open, fill and end runs of an experiment. The only module that imports mlflow."""

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.tracking import tracked
from tlm_ray.runs.tracking.tracked import Source

ENTRIES = 100  # history entries per request: MLflow accepts 1,000 metrics, an entry has at most 9
PARAMETERS = 100  # MLflow's limit per request
LONGEST = {"parameter": 6000, "tag": 8000, "digest": 36}  # MLflow's limit of characters
# By default a client tries 8 times, 120 s each, with doubling pauses, so a training could wait for minutes.
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "PGCONNECT_TIMEOUT": "5",
}
# Exceptions of MLflow's client for a server or database that is unreachable, refuses or gives invalid answers. Those of
# `requests` are OSErrors; a JSON answer of other types than MLflow's is a ParseError.
AWAY = (MlflowException, OSError, ParseError, SQLAlchemyError)
TIMEOUT, UPLOAD_S = "MLFLOW_HTTP_REQUEST_TIMEOUT", "600"  # a model is one request, which its server may pass on
ANSWER_S = 20.0  # for each request to a server, including the upload of a page
SQLITE = "sqlite:///"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # makes MLflow's pages show runs, not conversations
MODEL, REGISTERED = "model", "registered_model"  # tags of a run
RUNNING, FINISHED = "RUNNING", "FINISHED"


class Store:
    """The runs of one experiment in an MLflow store. Any method raises one of AWAY if the store is unreachable."""

    def __init__(self, uri: str, experiment: str = ""):
        for name, value in QUIET.items():  # in each process, because Ray's started before the driver's settings
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # they log each table of a new store
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri, self.name = uri, experiment
        self.steps: dict[tuple[str, str], int] = {}  # last logged steps, by run and prefix

    @cached_property
    def client(self) -> MlflowClient:
        """Return MLflow's client; this creates a missing database, and refuses a file store."""
        database.MAX_RETRY_COUNT = 1  # of 10, with doubling pauses: 100 s for an unreachable database
        client = MlflowClient(self.uri)
        return cast(MlflowClient, _Bounded(client)) if self.uri.startswith("http") else client

    @cached_property
    def experiment(self) -> str:
        """The experiment's id; the experiment is created if missing."""
        found = self.client.get_experiment_by_name(self.name)
        if found:
            return found.experiment_id
        # MLflow's own default is the working folder, which Ray deletes after a submitted job
        folder = self.uri.removeprefix(SQLITE).rpartition("/")[0] if self.uri.startswith(SQLITE) else ""
        artifacts = f"{folder}/mlruns/{self.name}" if folder and folder != os.getcwd() else None
        return self.client.create_experiment(self.name, artifact_location=artifacts, tags=KIND)

    def runs(self, **tags: str) -> list[Run]:
        """Find runs with these tags that are not deleted, newest first; the value "" matches any."""
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
        """Reopen a run that was ended."""
        if run.info.status != RUNNING:
            self.client.update_run(run.info.run_id, status=RUNNING)

    def end(self, run: str, status: str) -> None:
        """End a run as FINISHED, FAILED or KILLED; if it already has that status, its end time stays."""
        if self.client.get_run(run).info.status != status:
            self.client.set_terminated(run, status)

    def log_parameters(self, run: Run, parameters: Mapping[str, str]) -> None:
        """Log the parameters that a run lacks, because MLflow refuses a second value."""
        known = run.data.params
        fresh = [Param(name, text[: LONGEST["parameter"]]) for name, text in parameters.items() if name not in known]
        for start in range(0, len(fresh), PARAMETERS):
            self.client.log_batch(run.info.run_id, params=fresh[start : start + PARAMETERS])

    def log_numbers(self, run: str, numbers: Mapping[str, float]) -> None:
        """Log the metrics that a run lacks or that differ."""
        known = self.client.get_run(run).data.metrics
        fresh = [metric for metric in _metrics(numbers, step=0) if known.get(metric.key) != metric.value]
        self.client.log_batch(run, metrics=fresh)

    def log_history(self, run: str, prefix: str, history: Sequence[Mapping[str, float]]) -> None:
        """Log the history entries that a run lacks; each entry is logged completely or not at all."""
        logged = self.steps.pop((run, prefix), None)  # unknown again if this fails
        if logged is None:
            found = self.client.get_metric_history(run, f"{prefix}/learning_rate")
            logged = max((metric.step for metric in found), default=0)
        fresh = [entry for entry in history if entry["step"] > logged]
        for start in range(0, len(fresh), ENTRIES):
            points: list[Metric] = []
            for entry in fresh[start : start + ENTRIES]:
                values = {f"{prefix}/{name}": value for name, value in entry.items() if name != "step"}
                points += _metrics(values, step=int(entry["step"]))
            self.client.log_batch(run, metrics=points)
        self.steps[run, prefix] = int(fresh[-1]["step"]) if fresh else logged

    def log_sources(self, run: str, sources: Sequence[Source], records: Records) -> None:
        """Log a run's data as a reference to its stage's folder."""
        if sources:
            self.client.log_inputs(run, [_dataset(source, records) for source in sources])

    def log_file(self, run: str, uri: str) -> None:
        """Log a file as an artifact; a Markdown file also becomes the run's description."""
        with storage.file_for_reading(uri) as path:
            self.client.log_artifact(run, str(path))
            if uri.endswith(".md"):
                text = storage.read_bytes(str(path)).decode()[: LONGEST["tag"]]
                self.client.set_tag(run, "mlflow.note.content", text)

    def log_model(self, run: Run, folder: str, *, register: str = "") -> None:
        """Log a classifier's folder to a run once, and register it once if a name is given."""
        tags, run_id = run.data.tags, run.info.run_id
        mlflow.set_tracking_uri(self.uri)  # models are logged by functions of the module
        model = tags.get(MODEL)
        if model is None:
            with _time_to_upload():
                model = _log_model(run_id, folder)
            self.client.set_tag(run_id, MODEL, model)
        if register and tags.get(REGISTERED) != register:
            mlflow.register_model(model, register)
            self.client.set_tag(run_id, REGISTERED, register)

    def monitor(self, run: Run) -> SystemMetricsMonitor | None:
        """Log system metrics of this machine to a run, if MLflow's own setting enables them."""
        if not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
            return None
        monitor = SystemMetricsMonitor(run.info.run_id, resume_logging=True, tracking_uri=self.uri)
        monitor.start()
        return monitor


class _Bounded:
    """A client with a time limit per answer, because a server that sends slowly never reaches a read timeout."""

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
            raise TimeoutError(f"no complete answer within {ANSWER_S:g} s") from None


@contextlib.contextmanager
def _time_to_upload() -> Iterator[None]:
    """Give requests the time that a model of gigabytes takes, unless the user has set a time."""
    before = os.environ[TIMEOUT]
    os.environ[TIMEOUT] = UPLOAD_S if before == QUIET[TIMEOUT] else before
    try:
        yield
    finally:
        os.environ[TIMEOUT] = before


def _log_model(run: str, folder: str) -> str:
    """Log a classifier in the transformers flavour and return its URI.

    It logs a pipeline, because MLflow 3.17 cannot read a folder with transformers 5. Requirements are explicit, because
    those that MLflow infers include torchvision.
    """
    import torch
    import transformers

    logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)  # it looks up the folder's model card on the hub
    transformers.utils.logging.disable_progress_bar()
    with storage.folder_for_reading(folder) as path:
        logged = mlflow.models.Model.log(
            None,
            mlflow.transformers,
            name="model",
            run_id=run,
            transformers_model=transformers.pipeline("text-classification", model=str(path)),
            task="text-classification",
            model_config={"truncation": True},  # a text may exceed the model's positions
            pip_requirements=[f"{one.__name__}=={one.__version__.partition('+')[0]}" for one in (transformers, torch)],
        )
    return logged.model_uri


def _metrics(values: Mapping[str, float], *, step: int) -> list[Metric]:
    """Return metrics with names that MLflow accepts."""
    now = mlflow.utils.time.get_current_time_millis()
    return [Metric(_name(name), float(value), now, step) for name, value in values.items()]


def _name(text: str) -> str:
    words = " ".join(re.sub(r"[^\w\-. /]", " ", text).split())
    return "/".join(part for part in words.split("/") if part not in ("", ".", ".."))  # such as a row's "/models/bert"


def _dataset(source: Source, records: Records) -> DatasetInput:
    dataset = Dataset(
        name=source.name,
        digest=source.digest[: LONGEST["digest"]],
        source_type="local" if storage.is_local(records.root) else "uri",
        source=json.dumps({"uri": storage.shown(storage.join(records.root, source.folder))}),
        profile=json.dumps(tracked.amounts(source, records)),
    )
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", source.context)])
