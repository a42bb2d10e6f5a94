"""Progress of a training: what its worker notes, and what the driver tells of it."""

import threading

import pytest

from tlm_ray import metrics, storage
from tlm_ray.training.loop import progress
from tlm_ray.training.loop.checkpoints import Progress
from tlm_ray.training.loop.progress import NOTE, Ticker, followed


def test_a_run_that_resumes_is_told_from_where_it_is_not_from_where_a_killed_one_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "NOTE_EVERY_S", 0.001)
    folder, told = str(tmp_path / "stage_one" / "0123456789"), threading.Semaphore(0)
    killed, resumed = ([{"step": step, "task": 1.0}] for step in (900, 510))
    ticker = Ticker(folder)
    ticker.last = 0.0
    ticker(Progress(step=900, seconds=90.0, history=killed))
    with followed(folder, 1000, [lambda history: seen.append(history[-1]["step"]) or told.release()]):
        seen: list[int] = []
        ticker.last = 0.0
        ticker(Progress(step=510, seconds=51.0, history=resumed))
        assert told.acquire(timeout=10)
    assert set(seen) == {510} and "step 900" not in capsys.readouterr().out
    assert not storage.exists(storage.join(folder, NOTE))


def test_a_loss_is_measured_against_the_lowest_of_its_own_training(tmp_path, monkeypatch):
    """A process that is used again tells of the next training under the same name."""
    told = []
    monkeypatch.setattr(metrics.LOSS_RISE, "set", lambda value, **tags: told.append((tags["loss"], value)))
    for losses in ([3.0, 1.0, 1.5], [9.0]):
        ticker = Ticker(str(tmp_path / "stage_one" / "0123456789"))
        history = [{"step": step, "general_mlm": loss, "learning_rate": 0.1} for step, loss in enumerate(losses)]
        for length in range(1, len(history) + 1):
            ticker(Progress(step=length, history=history[:length]))
    assert told == [("general_mlm", pytest.approx(value)) for value in (0, 0, 0.5, 0)]
