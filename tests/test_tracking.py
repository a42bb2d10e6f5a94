"""Tracking watches: a server that is away or talks nonsense costs one line, an error of ours is raised."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import mlflow
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from tlm_ray.runs.stages import Stage
from tlm_ray.runs.tracking import StepLogger, Tracker

HISTORY = [{"step": step, "learning_rate": 0.1 / step, "task": 1.0 / step} for step in range(1, 251)]


def training(name: str = "stage_one", **parameters: int) -> Stage:
    return Stage(name=name, version=1, parameters=parameters, make=lambda folder, inputs: {}, lane="train")


def record(stage: Stage) -> dict:
    return {"recipe": stage.recipe, "facts": {"steps": 250, "history": HISTORY}}


class Server(ThreadingHTTPServer):
    """Answers every request in one way; a status of 0 closes the connection after two seconds without an answer."""

    status, body, location = 200, b"", ""


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.server.status:
            time.sleep(2)
            return
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with Server(("127.0.0.1", 0), Answer) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


HOSTILE = json.dumps({"experiment": {"creation_time": "soon"}, "run": {"info": {"run_id": 7}}}).encode()
ANSWERS = {
    "HTML": (200, b"<html>Sign in</html>", ""),
    "half a JSON": (200, b'{"experiment": {', ""),
    "null": (200, b"null", ""),
    "a list": (200, b"[]", ""),
    "a string": (200, b'"yes"', ""),
    "other bytes": (200, b"\x80\x81", ""),
    "a number for an object": (200, b'{"experiment": 5, "run": 5}', ""),
    "other types": (200, HOSTILE, ""),
    "nested without end": (200, b"[" * 100_000, ""),
    "500": (500, b"broken", ""),
    "500 as a list": (500, b"[]", ""),
    "500 with an odd code": (500, b'{"error_code": [1], "message": {}}', ""),
    "401": (401, b"who are you?", ""),
    "a redirect to itself": (302, b"", "/api/2.0/mlflow/experiments/get-by-name"),
    "nothing in time": (0, b"", ""),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_that_answers_nonsense_costs_one_line(server, tmp_path, capsys, answer):
    server.status, server.body, server.location = ANSWERS[answer]
    uri, stage = f"http://user:secret@127.0.0.1:{server.server_port}", training()
    tracker = Tracker.start("test", uri=uri, root=str(tmp_path))
    assert tracker.callbacks(stage) == []
    tracker.close(stage, record(stage))
    tracker.attach([str(tmp_path / "absent")])
    tracker.finish({})
    tracker.fail()
    (line,) = capsys.readouterr().out.splitlines()
    assert "going on without it" in line and "secret" not in line


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "file:./mlruns", "ftp://127.0.0.1/runs"])
def test_a_store_that_is_away_or_that_mlflow_refuses_costs_one_line(tmp_path, capsys, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    tracker = Tracker.start("test", uri=uri, root=str(tmp_path))
    assert tracker.callbacks(training()) == []
    assert capsys.readouterr().out.count("going on without it") == 1


def test_a_file_that_is_no_database_costs_one_line(tmp_path, capsys):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    Tracker.start("test", uri=f"sqlite:///{tmp_path}/mlflow.db", root=str(tmp_path))
    assert "file is not a database; going on without it" in capsys.readouterr().out


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def tracker(uri, tmp_path) -> Tracker:
    """A tracker whose store is there, with a root of its own."""
    return Tracker.start("test", uri=uri, root=str(tmp_path))


def steps(tracker: Tracker, run: str) -> list[int]:
    return [metric.step for metric in tracker.client.get_metric_history(run, "learning_rate")]


def test_steps_that_the_controller_could_not_log_are_logged_when_the_training_ends(tracker, server):
    stage = training(seed=1)
    (logger,) = tracker.callbacks(stage)
    logger.after_report(None, [{"history": HISTORY[:120]}], None)
    server.status, server.body = 500, b"broken"
    away = StepLogger(f"http://127.0.0.1:{server.server_port}", logger.run, logger.logged)
    away.after_report(None, [{"history": HISTORY}], None)
    server.status = 200
    away.after_report(None, [{"history": HISTORY}], None)
    assert steps(tracker, logger.run) == list(range(1, 121))
    tracker.close(stage, record(stage))
    assert steps(tracker, logger.run) == list(range(1, 251))
    assert tracker.client.get_run(logger.run).info.status == "FINISHED"


def test_an_error_of_ours_is_raised(tracker, monkeypatch):
    (logger,) = tracker.callbacks(training(seed=2))
    with pytest.raises(TypeError):
        logger.after_report(None, [{"history": [{"step": 1, "task": None}]}], None)
    with pytest.raises(TypeError):
        tracker.finish({"dev": None})
    assert tracker.alive


def test_a_child_says_which_row_task_and_seed_it_is_in_every_process(tracker):
    stage = training(seed=3)
    tracker.label(stage, row="TLM, BM25 text", task="sciie", seed=3)
    tracker.label(stage, row="the same training in another row")
    (logger,) = pickle.loads(pickle.dumps(tracker)).callbacks(stage)
    run = tracker.client.get_run(logger.run)
    assert run.info.run_name == f"stage_one {stage.fingerprint[:8]} row TLM, BM25 text, task sciie, seed 3"
    assert {name: run.data.tags[name] for name in ("row", "task", "seed", "stage", "mlflow.parentRunId")} == {
        "row": "TLM, BM25 text", "task": "sciie", "seed": "3", "stage": "stage_one",
        "mlflow.parentRunId": tracker.parent,
    }  # fmt: skip


def test_a_child_that_another_process_left_is_ended_and_taken_up_again(tracker, uri):
    stage = training("stage_two", seed=4)
    (logger,) = pickle.loads(pickle.dumps(tracker)).callbacks(stage)
    logger.after_report(None, [{"history": HISTORY[:5]}], None)
    tracker.end(stage, "KILLED")
    assert tracker.client.get_run(logger.run).info.status == "KILLED"
    tracker.end(training("stage_two", seed=5), "KILLED")  # which never began
    later = Tracker.start("test", uri=uri, root=tracker.root)
    (again,) = later.callbacks(stage)
    assert (again.run, again.logged) == (logger.run, 5)
    assert tracker.client.get_run(logger.run).info.status == "RUNNING"


def test_a_deleted_child_is_opened_anew(tracker):
    stage = training(seed=6)
    (logger,) = tracker.callbacks(stage)
    tracker.client.delete_run(logger.run)
    (again,) = tracker.callbacks(stage)
    assert again.run != logger.run and tracker.alive


class Counting(LocalFileSystem):
    """A filesystem elsewhere that knows which files were read."""

    def __init__(self) -> None:
        super().__init__(skip_instance_cache=True)
        self.read: list[str] = []

    def _open(self, path: str, *arguments: object, **options: object) -> object:
        self.read.append(Path(path).name)
        return super()._open(path, *arguments, **options)


def test_attaching_files_reads_these_alone(tracker, tmp_path, monkeypatch):
    there = Counting()
    (tmp_path / "hub" / "out").mkdir(parents=True)
    for name in "abcdef":
        (tmp_path / "hub" / "out" / f"{name}.md").write_text(name)
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: DirFileSystem(str(tmp_path / "hub"), there))
    tracker.attach(["hf://out/b.md", "hf://out/d.md", str(tmp_path / "hub" / "out" / "a.md")])
    assert there.read == ["b.md", "d.md"]
    run = tracker.client.get_run(tracker.parent)
    names = [file.path for file in tracker.client.list_artifacts(tracker.parent)]
    assert names == ["a.md", "b.md", "d.md"]
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/d.md") == "d"
