"""A run that is interrupted at any step and resumed is the whole run, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from trainings import (
    SCHEDULE,
    Interrupted,
    assert_same_run,
    ignore,
    interrupt_at,
    keep_in,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_interrupted,
    run_whole,
    stage_one,
)

from tlm_ray.training.loop.checkpoints import save_checkpoint
from tlm_ray.training.loop.worker import Worker

DROPPING = stage_one(dropout=0.1)


@pytest.mark.parametrize("seed", range(2))
def test_an_interrupted_run_is_the_whole_run_bit_for_bit(tmp_path, seed):
    stops = np.random.default_rng(seed).integers(1, SCHEDULE.steps, 3).tolist()
    assert_same_run(run_whole(DROPPING), run_interrupted(tmp_path, stops, lambda: make_trainer(DROPPING)))


@pytest.mark.parametrize("stops", [[2, 7], [6, 6], [9, 11]])
def test_an_interrupted_mean_of_weights_is_the_whole_runs_bit_for_bit(tmp_path, stops):
    settings = replace(DROPPING, schedule=replace(SCHEDULE, evaluate_every=3, averaged=0.5))
    scored = {"evaluate": lambda model: {"dev": float(next(model.parameters()).detach().sum())}, "keep_best": True}
    whole = run_whole(settings, **scored)
    assert_same_run(whole, run_interrupted(tmp_path, stops, lambda: make_trainer(settings, **scored)))


def test_a_run_goes_on_from_every_step_bit_for_bit(tmp_path):
    settings = replace(DROPPING, schedule=replace(SCHEDULE, evaluate_every=1))

    whole = make_trainer(settings)
    whole.run(lambda take: save_checkpoint(f"{tmp_path}/{whole.progress.step}", take()))
    for step in range(1, SCHEDULE.steps):
        trainer = make_trainer(settings)
        trainer.resume(f"{tmp_path}/{step}")
        assert trainer.progress.step == step
        trainer.run(ignore)
        assert_same_run(whole, trainer)


def test_a_run_goes_on_from_a_checkpoint_between_evaluations_bit_for_bit(tmp_path):
    settings = replace(DROPPING, schedule=replace(SCHEDULE, evaluate_every=6, log_every=2))
    scored = {"evaluate": lambda model: {"dev": float(next(model.parameters()).detach().sum())}, "keep_best": True}
    whole = make_trainer(settings, **scored)
    steps = []

    def keep(take):
        steps.append(whole.progress.step)
        save_checkpoint(f"{tmp_path}/{whole.progress.step}", take())

    whole.run(keep, is_late=lambda: whole.progress.step in (3, 4, 8))
    assert steps == [4, 6, 8], "where losses are logged, so that none of a window is lost"
    for step in steps:
        trainer = make_trainer(settings, **scored)
        trainer.resume(f"{tmp_path}/{step}")
        trainer.run(ignore)
        assert_same_run(whole, trainer)


@pytest.mark.parametrize(
    ("worker", "steps"),
    [(Worker(), range(1, SCHEDULE.steps)), (Worker(micro_rows=3), (1, 6, 11))],
    ids=["whole", "in parts"],
)
def test_a_run_leaves_after_any_step_and_goes_on_bit_for_bit(tmp_path, worker, steps):
    settings = replace(DROPPING, schedule=replace(SCHEDULE, evaluate_every=6, log_every=4))
    whole = run_whole(settings, worker)
    for step in steps:
        first, second = make_trainer(settings, worker), make_trainer(settings, worker)
        progress = first.run(keep_in(tmp_path), is_leaving=lambda: first.progress.step >= step)  # noqa: B023 - run here
        assert progress.step == step
        second.resume(str(tmp_path))
        second.run(ignore)
        assert_same_run(whole, second)


def test_a_run_that_is_to_leave_at_its_last_step_ends():
    whole, other = run_whole(DROPPING), make_trainer(DROPPING)
    other.run(ignore, is_leaving=lambda: other.progress.step == SCHEDULE.steps)
    assert_same_run(whole, other)


def test_a_run_with_broken_weights_leaves_no_checkpoint():
    settings, saved = replace(DROPPING, schedule=replace(SCHEDULE, evaluate_every=6, log_every=4)), []
    trainer = make_trainer(settings)
    trainer.model.encoder.embeddings.LayerNorm.weight.data[0] = float("nan")
    with pytest.raises(FloatingPointError, match="steps 1 to 3: a loss is not finite"):
        trainer.run(saved.append, is_leaving=lambda: trainer.progress.step == 3)
    assert not saved


def test_an_interrupted_run_keeps_the_best_weights_of_before(tmp_path):
    scores = {4: 30.0, 8: 50.0, 12: 40.0}

    def scored():
        trainer = make_trainer(DROPPING, evaluate=lambda model: {"dev": scores[trainer.progress.step]}, keep_best=True)
        return trainer

    whole, first, second = scored(), scored(), scored()
    whole.run(ignore)
    with pytest.raises(Interrupted):
        first.run(keep_in(tmp_path), tick=lambda p: interrupt_at(p, 10))
    second.resume(str(tmp_path))
    second.run(ignore)
    assert second.progress.best_step == 8
    assert_same_run(whole, second)
