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

from tlm_ray.training.checkpoints import save_checkpoint

DROPPING = stage_one(dropout=0.1)


@pytest.mark.parametrize("seed", range(4))
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
