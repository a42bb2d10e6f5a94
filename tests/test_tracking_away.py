"""A server that is away or talks nonsense costs one line and little time, and gets later what it missed."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator

import pytest
from tracked_trainings import HISTORY, Answer, Server, recorded, stage, trained

from tlm_ray.runs.tracking import mlflow_store
from tlm_ray.runs.tracking.tracker import Tracker


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with Server(("127.0.0.1", 0), Answer) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.stopped.set()
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
    uri, last = f"http://user:secret@127.0.0.1:{server.server_port}", trained(seed=1)
    tracker = Tracker.start("test", uri=uri, root=str(tmp_path))
    tracker.label(last, row="ours", task="topics", seed=1)
    tracker.follow(last.inputs["stage_two"], HISTORY)
    recorded(last, str(tmp_path))
    tracker.close(last, {})
    tracker.attach([str(tmp_path / "absent")])
    tracker.finish({})
    tracker.log_model(last, str(tmp_path / "absent"))
    tracker.fail()
    (line,) = capsys.readouterr().out.splitlines()
    assert "continuing without it" in line and "secret" not in line


def test_a_server_that_drips_is_given_up_as_one_that_says_nothing(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mlflow_store, "ANSWER_S", 1.0)
    server.body, server.drips = b" " * 1000, True
    Tracker.start("test", uri=f"http://127.0.0.1:{server.server_port}", root=str(tmp_path))
    assert "no complete answer within 1 s; continuing without it" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "file:./mlruns", "ftp://127.0.0.1/runs"])
def test_a_store_that_is_away_or_that_mlflow_refuses_costs_one_line(tmp_path, capsys, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    tracker = Tracker.start("test", uri=uri, root=str(tmp_path))
    tracker.follow(stage(), HISTORY)
    assert capsys.readouterr().out.count("continuing without it") == 1


def test_a_file_that_is_no_database_costs_one_line(tmp_path, capsys):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    Tracker.start("test", uri=f"sqlite:///{tmp_path}/mlflow.db", root=str(tmp_path))
    assert "file is not a database; continuing without it" in capsys.readouterr().out


def test_a_client_in_any_process_gives_up_soon(monkeypatch):
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(mlflow_store.AWAY):
        mlflow_store.Store("http://127.0.0.1:9").log_history("run", "stage_one", HISTORY[:1])
    retries, timeout = (f"MLFLOW_HTTP_REQUEST_{name}" for name in ("MAX_RETRIES", "TIMEOUT"))
    assert int(os.environ[retries]) <= 1 and int(os.environ[timeout]) <= 5


def steps(tracker: Tracker) -> list[int]:
    (run,) = tracker.store.runs(**{"mlflow.parentRunId": tracker.parent})
    found = tracker.store.client.get_metric_history(run.info.run_id, "stage_two/learning_rate")
    return [metric.step for metric in found]


@contextlib.contextmanager
def away(tracker: Tracker) -> Iterator[None]:
    """A store that fails to log, though it may have logged."""
    log = tracker.store.client.log_batch

    def lost(*arguments, **options):
        log(*arguments, **options)
        raise OSError("reset by peer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracker.store.client, "log_batch", lost)
        yield


def test_what_could_not_be_logged_is_logged_when_the_store_is_back(tmp_path, capsys, monkeypatch):
    last = trained(seed=3)
    tracker = Tracker.start("test", uri=f"sqlite:///{tmp_path}/mlflow.db", root=str(tmp_path))
    tracker.label(last)
    tracker.follow(last.inputs["stage_two"], HISTORY[:120])
    tracker.next_sync = 0
    with away(tracker):
        tracker.follow(last.inputs["stage_two"], HISTORY[:150])
        tracker.sync()
    assert capsys.readouterr().out.count("missing ones are sent once it is reachable again") == 1
    tracker.sync()
    assert steps(tracker) == list(range(1, 151)), "entries of the lost answer are there once"
    tracker.follow(last.inputs["stage_two"], HISTORY[:200])
    tracker.sync()
    assert steps(tracker) == list(range(1, 151)), "a store that is away is not asked for a minute"
    monkeypatch.setattr(tracker, "away_until", 0)
    tracker.sync()
    assert steps(tracker) == list(range(1, 201))
    with away(tracker):
        recorded(last, str(tmp_path))
        tracker.close(last, {})
    tracker.finish({})
    assert steps(tracker) == list(range(1, 251))


def test_a_database_that_cannot_be_opened_is_not_waited_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mlflow.store.db.utils.time.sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))
    (tmp_path / "folder").mkdir()
    Tracker.start("test", uri=f"sqlite:///{tmp_path}/folder", root=str(tmp_path))
    assert capsys.readouterr().out.count("continuing without it") == 1
