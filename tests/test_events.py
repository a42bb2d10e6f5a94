"""The line of JSON that each event of a run leaves, where a file for them is named."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tracked import empty_store

from tlm_ray import events, storage
from tlm_ray.runs.cli.errors import plain_errors
from tlm_ray.runs.stages import locks
from tlm_ray.runs.stages.locks import StageLocked, locked
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.stage import DIGITS, Stage
from tlm_ray.training.loop import progress
from tlm_ray.training.loop.checkpoints import Progress
from tlm_ray.training.loop.progress import Ticker, followed

ROOT = Path(__file__).parents[1]


@pytest.fixture
def log(tmp_path):
    """The file of events, open for the time of a test."""
    events.write_to(str(tmp_path / "events.jsonl"))
    yield tmp_path / "events.jsonl"
    events.write_to("")


def lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def stage_of(make_it, *, name="blocks", label="", **inputs):
    return Stage(name=name, version=1, parameters={}, make=make_it, inputs=inputs, label=label)


def test_each_event_of_a_stage_is_a_line_that_is_found_by_its_kind_fingerprint_and_task(log, tmp_path):
    task = stage_of(lambda folder, inputs: {}, name="task", label="sciie")
    blocks = stage_of(lambda folder, inputs: {"rows": 3}, task=task)
    before = datetime.now(UTC)
    make([blocks], str(tmp_path))
    make([blocks], str(tmp_path))
    told = lines(log)
    own = [each for each in told if each["fingerprint"] == blocks.fingerprint[:DIGITS]]
    assert [each["message"] for each in own] == ["lock taken", "stage begun", "stage made", "stage found"]
    assert {(each["stage"], each.get("task", "sciie"), each["level"]) for each in own} == {("blocks", "sciie", "info")}
    assert own[2]["seconds"] == blocks.record(str(tmp_path))["seconds"]
    times = [datetime.fromisoformat(each["time"]) for each in told]
    assert times == sorted(times) and times[-1] >= times[0] >= before.replace(microsecond=0)


def test_an_error_is_one_line_without_credentials_and_control_characters(log, tmp_path):
    said = 'row 3: label "a\nb\x1b[31m\x9b" of s3://key:secret@bucket/x?token=hidden&region=here'

    def fails(folder, inputs):
        raise ValueError(said)

    with pytest.raises(ValueError):
        make([stage_of(fails)], str(tmp_path))
    with pytest.raises(SystemExit), plain_errors():
        raise OSError(said)
    *_, last, end = lines(log)
    assert (end["message"], end["level"], end["error"]) == ("run failed", "error", last["error"])
    assert (last["message"], last["level"], last["stage"]) == ("stage failed", "error", "blocks")
    assert last["error"] == 'row 3: label "a\nb\x1b[31m\x9b" of s3://***@bucket/x?token=***&region=here'
    text = log.read_text()
    assert "secret" not in text and "hidden" not in text
    assert text.isascii() and not any(each < " " for each in text.replace("\n", ""))


def test_a_lock_that_is_waited_for_and_one_that_is_lost_are_told(log, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PAUSES_S", (0.0, 0.0))
    with locked(str(tmp_path), "blocks/0123") as lock:
        with pytest.raises(StageLocked), locked(str(tmp_path), "blocks/0123"):
            pass
        storage.delete(lock.uri)
        with pytest.raises(StageLocked):
            lock.check()
    told = [(each["message"], each["stage"], each["fingerprint"]) for each in lines(log)]
    messages = ["lock taken", "lock waited for", "lock waited for", "lock lost"]
    assert told == [(message, "blocks", "0123") for message in messages]
    assert lines(log)[1]["process"] == os.getpid()


def test_a_training_that_goes_on_from_a_checkpoint_tells_so_and_how_far_it_is(log, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "NOTE_EVERY_S", 0.001)
    folder = str(tmp_path / "stage_one" / "0123456789")
    ticker = Ticker(folder, step=500, tokens=64_000)
    ticker.last = 0.0
    done = []
    with followed(folder, 1000, [lambda history: done.append(history)]):
        while not done:
            ticker.last = 0.0
            ticker(Progress(step=510, tokens=65_000, seconds=51.0, history=[{"step": 510, "task": 1.5}]))
    resumed, going, *_ = lines(log)
    words = {"stage": "stage_one", "fingerprint": "0123456789"}
    assert resumed.items() >= (words | {"message": "training resumed", "level": "warning", "step": 500}).items()
    expected = {"message": "training progress", "steps": 1000, "logged": {"step": 510, "task": 1.5}, "seconds_left": 49}
    assert going.items() >= (words | expected).items()


def test_nothing_is_told_where_no_file_is_named(tmp_path, capfd):
    events.write_to("")
    make([stage_of(lambda folder, inputs: {})], str(tmp_path))
    events.warn("lock lost", stage="blocks")
    events.fail("stage failed", stage="blocks")
    told = capfd.readouterr()
    assert not told.err and "{" not in told.out


def test_events_go_to_stderr_where_a_dash_is_named(capsys):
    events.write_to("-")
    events.tell("stage begun", stage="blocks")
    events.write_to("")
    told = capsys.readouterr()
    assert json.loads(told.err)["stage"] == "blocks" and not told.out


def test_a_store_and_a_file_in_no_folder_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"--log-json s3://\*\*\*@bucket/log: an object store cannot append; give a local file"
    ):
        events.write_to("s3://key:secret@bucket/log")
    with pytest.raises(
        OSError, match=r"--log-json .*/gone/log: No such file or directory; give a file in an existing folder"
    ):
        events.write_to(str(tmp_path / "gone" / "log"))


@pytest.mark.slow
@pytest.mark.long
def test_a_command_leaves_its_events_in_the_file_that_it_names(data, tmp_path):
    log, steps = tmp_path / "events.jsonl", ["--steps", "8", "--steps-two", "4", "--k", "5", "--seeds", "1"]
    where = ["--root", str(tmp_path / "tlm"), "--out", str(tmp_path / "out"), "--log-json", str(log)]
    command = [
        *(sys.executable, "experiments/main_table.py", "--rows", "task data only", *steps, "--precision", "fp32"),
        *("--tasks", "topics", "--task-root", str(data / "tasks"), "--corpus", str(data / "corpus"), *where),
        *("--tracking-uri", empty_store(tmp_path)),
    ]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "{" not in done.stdout + done.stderr
    told = lines(log)
    by_kind = {each["stage"]: [one["message"] for one in told if one["stage"] == each["stage"]] for each in told}
    assert by_kind.keys() == {"task", "tokenizer", "blocks", "counts", "stage_one", "stage_two", "metrics"}
    once = ["lock taken", "stage begun", "stage made"]
    assert by_kind["blocks"] == once and by_kind["metrics"] == [*once, "stage found"], (
        "inputs of what is found are not looked for"
    )
    assert {each["task"] for each in told if each["message"].startswith("stage")} == {"topics"}
    folders = {f"{each['stage']}/{each['fingerprint']}" for each in told}
    assert all((tmp_path / "tlm" / folder / "record.json").exists() for folder in folders)
