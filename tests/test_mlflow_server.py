"""Against a real MLflow server over HTTP, which is killed in the middle of an experiment and comes back."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import requests
import torch
from tracked_trainings import HISTORY, recorded, trained
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
from waiting import wait_for

from tlm_ray.runs.tracking.tracker import Tracker

QUICK = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # eight processes fewer


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """An MLflow server on loopback, killed with all its processes in the end."""
    store = [f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/artifacts"]
    command = [sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1", *store]
    with (folder / "log").open("ab") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=folder, env=QUICK)
    try:
        wait_for(lambda: is_there(port))
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def is_there(port: int) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok
    return False


def tiny_model(folder: Path) -> str:
    """A classifier of three words, as a stage keeps one."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "wave", "star", "oven"]
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)}, model_max_length=16)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "max_position_embeddings": 16,
    }
    names = {"id2label": {0: "sea", 1: "sky"}, "label2id": {"sea": 0, "sky": 1}}
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **sizes, **names)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's, which loads a model
def test_a_server_killed_amid_an_experiment_has_all_of_it_after_the_next_run(tmp_path, capsys):
    port, lasts = free_port(), [trained(seed=0), trained(seed=1)]

    def tracker() -> Tracker:
        started = Tracker.start("test", uri=f"http://127.0.0.1:{port}", root=str(tmp_path / "root"))
        for seed, last in enumerate(lasts):
            started.label(last, row="ours", task="topics", seed=seed)
        return started

    report = tmp_path / "test.md"
    report.write_text("| table |")
    with server(tmp_path, port):
        first = tracker()
        first.follow(lasts[0].inputs["stage_two"], HISTORY[:100])
    for last in lasts:
        first.follow(last.inputs["stage_two"], HISTORY)
        recorded(last, first.root)
        first.close(last, {})
    first.finish({"test/ours on topics": 60.0})
    first.attach([str(report)])
    assert capsys.readouterr().out.count("continuing without it") == 1
    with server(tmp_path, port):
        second = tracker()
        for last in lasts:  # found
            second.close(last, {})
        second.finish({"test/ours on topics": 60.0})
        second.attach([str(report)])
        second.log_model(lasts[1], tiny_model(tmp_path / "model"), register="ours")
        assert second.parent == first.parent
        check(second)
    assert "tracking" not in capsys.readouterr().out


def check(tracker: Tracker) -> None:
    """The server has each training once, whole, the report, and a model that predicts."""
    client = tracker.store.client
    parent, *children = sorted(client.search_runs([tracker.store.experiment]), key=lambda run: len(run.info.run_name))
    assert [run.info.status for run in (parent, *children)] == ["FINISHED"] * 3
    assert parent.data.metrics == {"test/ours on topics": 60.0}
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["test.md"]
    for run in children:
        assert run.data.metrics["test"] == 60.0
        for stage in ("stage_one", "stage_two"):
            points = client.get_metric_history(run.info.run_id, f"{stage}/task")
            assert [(point.step, point.value) for point in points] == [(e["step"], e["task"]) for e in HISTORY]
    said = mlflow.pyfunc.load_model("models:/ours/1").predict(["wave star", "oven " * 50])
    assert set(said["label"]) <= {"sea", "sky"} and len(said) == 2
