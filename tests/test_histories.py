"""What a training tells while it runs: reports, mean losses, rates, operations."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from trainings import (
    LOSSES,
    SCHEDULE,
    losses_of,
    make_batches,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_whole,
    stage_one,
)

from tlm_ray.training.loop.worker import Worker


def batches_of_the_run():
    return [make_batches(stage_one()).batch(step) for step in range(SCHEDULE.steps)]


def test_a_checkpoint_is_offered_at_each_evaluation_but_the_last():
    offered = []
    schedule = replace(SCHEDULE, steps=10, evaluate_every=4)
    trainer = make_trainer(stage_one(schedule=schedule), evaluate=lambda model: {"dev": 7.0})
    trainer.run(lambda take: offered.append(take().progress["step"]))
    assert offered == [4, 8]
    assert [entry["step"] for entry in trainer.progress.history if "dev" in entry] == [4, 8, 10]


def test_logged_losses_are_means_over_the_steps_that_have_them():
    each = run_whole().progress.history
    grouped = run_whole(stage_one(schedule=replace(SCHEDULE, log_every=6))).progress.history
    assert [entry["step"] for entry in grouped] == [4, 6, 8, 12]
    for first, entry in zip([0, 4, 6, 8], grouped, strict=True):
        window = each[first : entry["step"]]
        values = {name: [e[name] for e in window if name in e] for name in LOSSES}
        means = {name: np.mean(found) for name, found in values.items() if found}
        assert losses_of(entry) == pytest.approx(means, rel=1e-6)


def test_tokens_are_the_real_ones():
    assert run_whole().progress.tokens == sum(int(batch.attention.sum()) for batch in batches_of_the_run())


def test_padding_and_waiting_are_told():
    shares = [1 - batch.real_tokens / batch.tokens.size for batch in batches_of_the_run()]
    history = run_whole().progress.history
    assert [entry["padded"] for entry in history] == pytest.approx(shares)
    assert all(0 < entry["waiting"] < 1 for entry in history)


def test_rates_are_of_steps_without_evaluations_since_the_last_entry(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    for module in ("trainer", "pace"):
        monkeypatch.setattr(f"tlm_ray.training.loop.{module}.time", clock)

    def work(seconds, result):
        clock.now += seconds
        return result

    settings = stage_one(schedule=replace(SCHEDULE, log_every=2))
    trainer = make_trainer(settings, evaluate=lambda model: work(100, {"dev": 7.0}))
    step = trainer.step
    monkeypatch.setattr(trainer, "step", lambda number: work(1 + number, step(number)))
    history = trainer.run(lambda *_: work(1000, None)).history
    tokens = np.array([batch.tokens_total for batch in batches_of_the_run()])
    expected = tokens.reshape(-1, 2).sum(1) / np.arange(1, SCHEDULE.steps + 1).reshape(-1, 2).sum(1)
    assert [entry["tokens_per_s"] for entry in history] == pytest.approx(expected.tolist())


def test_operations_are_counted_and_their_share_of_what_the_device_could_is_told(monkeypatch):
    monkeypatch.setattr("tlm_ray.training.loop.trainer.matmul_rate", lambda device, precision: 1e12)
    trainer = run_whole()
    batches, progress = batches_of_the_run(), trainer.progress
    assert progress.flops == sum(map(trainer.flops.computed, batches))
    assert run_whole(worker=Worker(micro_rows=3)).progress.flops != progress.flops
    for batch, entry in zip(batches, progress.history, strict=True):
        share = trainer.flops.real(batch) * entry["tokens_per_s"] / batch.real_tokens / 1e12
        assert entry["utilisation"] == pytest.approx(share)
