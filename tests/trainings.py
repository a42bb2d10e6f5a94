"""A training of a second in this process: its data, ways to interrupt it, and what is the same in two of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Pretrained, Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.loop.checkpoints import save_checkpoint, snapshot
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import NUMBERS, StageOne, StageSettings, StageTwo
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

LABELS, RHO2 = ("a", "b", "c"), 20.0
VOCABULARY = Vocabulary(
    size=80, pad_id=0, mask_id=4, special_ids=(0, 1, 2, 3, 4), sentinel_ids=tuple(range(70, 80)), end_id=3
)
GEOMETRY = Geometry(layers=1, width=32, heads=2, intermediate=64, positions=32, dropout=0.0)
SCHEDULE = Schedule(
    steps=12, batch_rows=8, learning_rate=5e-3, warmup_steps=3, weight_decay=0.1, evaluate_every=4, log_every=1
)
LOSSES = ("general_mlm", "task_mlm", "task")
TIMED = {"tokens_per_s", "waiting", "utilisation"}  # what a history says about this machine, not about the run


class Interrupted(Exception):
    """The machine went away."""


@pytest.fixture(autouse=True)
def one_thread():
    """Import it into a module of tests: sums are added up in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_blocks(rows: int, *, seed: int, labels: bool) -> Blocks:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, 24, rows)
    tokens = rng.integers(5, VOCABULARY.size, lengths.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Blocks(tokens, offsets, labels=rng.integers(0, len(LABELS), rows) if labels else None)


ROWS = {"general": make_blocks(100, seed=0, labels=False), "task": make_blocks(30, seed=1, labels=True)}


def stage_one(*, geometry: Geometry = GEOMETRY, dropout: float = 0.0, **changes: Any) -> StageOne:
    """Return the settings of a stage one of two general batches and a task batch."""
    settings: dict[str, Any] = {"schedule": SCHEDULE, "k": 10, "rho1": 2, "rho2": RHO2, "weighting": "released"}
    start = Scratch(replace(geometry, dropout=dropout))
    return StageOne(**(settings | {"start": start, "precision": "fp32", "seed": 0} | changes))


def stage_two(**changes: Any) -> StageTwo:
    """Return the settings of a stage two that begins with random weights."""
    settings: dict[str, Any] = {"start": Scratch(GEOMETRY), "schedule": SCHEDULE, "precision": "fp32", "seed": 0}
    return StageTwo(**(settings | changes))


def make_batches(settings: StageSettings, *, rank: int = 0, world: int = 1) -> Batches:
    streams = tuple(
        Stream(
            name=name,
            number=NUMBERS[name],
            blocks=ROWS[name],
            loss=loss,
            batch_rows=settings.schedule.batch_rows,
            seed=settings.seed,
        )
        for name, loss in settings.losses.items()
    )
    options = {"mixer": settings.mixer, "vocabulary": VOCABULARY, "seed": settings.seed}
    return Batches(streams=streams, rank=rank, world=world, **options)


def make_model(settings: StageSettings) -> JointModel:
    geometry = settings.start.geometry
    config = scratch_config(geometry, vocabulary=VOCABULARY.size, pad_id=VOCABULARY.pad_id, labels=LABELS)
    how: dict[str, Any] = {"tokenizer": None, "labels": LABELS, "seed": 0}
    teacher = JointModel.of(Pretrained(settings.taught_by), (Mlm(),), **how) if settings.taught_by else None
    model = JointModel(RandomWeights(config, seed=0), settings.heads, family=geometry.of_family, teacher=teacher)
    if settings.adapters:
        settings.adapters.add_to(model.encoder)
    return model


def make_trainer(settings: StageSettings | None = None, worker: Worker | None = None, **options: Any) -> Trainer:
    settings, worker = settings or stage_one(), worker or Worker()
    batches = make_batches(settings, rank=worker.rank, world=worker.world)
    options = {"optimizer": settings.optimizer} | options
    return Trainer(make_model(settings), batches, settings.schedule, worker, **options)


def ignore(take):
    """A report that keeps nothing."""


def keep_in(folder: Path):
    """A report that keeps the newest checkpoint."""
    return lambda take: save_checkpoint(str(folder), take())


def run_whole(settings: StageSettings | None = None, worker: Worker | None = None, **options: Any) -> Trainer:
    trainer = make_trainer(settings, worker, **options)
    trainer.run(ignore)
    return trainer


def run_interrupted(folder: Path, stops: list[int], make: Callable[[], Trainer]) -> Trainer:
    """Run until each of `stops`, then as a new process would: from the last checkpoint, if there is one."""

    def tick(progress):
        if progress.step in waiting:
            waiting.remove(progress.step)
            raise Interrupted

    def begun() -> Trainer:
        trainer = make()
        if (folder / "state.json").exists():
            trainer.resume(str(folder))
        return trainer

    waiting = list(stops)
    while waiting:
        with pytest.raises(Interrupted):
            begun().run(keep_in(folder), tick)
    trainer = begun()
    trainer.run(keep_in(folder), tick)
    return trainer


def interrupt_at(progress, step):
    if progress.step == step:
        raise Interrupted


def untimed(history):
    return [{name: value for name, value in entry.items() if name not in TIMED} for entry in history]


def losses_of(entry):
    return {name: entry[name] for name in LOSSES if name in entry}


def assert_same_run(one: Trainer, other: Trainer) -> None:
    """Two runs are one to the last bit: weights, moments, history."""
    left, right = snapshot(one.model), snapshot(other.model)
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    states = [
        {name: trainer.optimizer.state[p] for name, p in trainer.model.named_parameters()} for trainer in (one, other)
    ]
    for name, entries in states[0].items():
        assert entries.keys() == states[1][name].keys()
        assert all(torch.equal(value, states[1][name][key]) for key, value in entries.items())
    assert untimed(one.progress.history) == untimed(other.progress.history)
    for name in ("step", "tokens", "flops", "best_step", "best_score"):
        assert getattr(one.progress, name) == getattr(other.progress, name)


def assert_near_losses(history, whole: Trainer, *, rel: float = 1e-4) -> None:
    for entry, expected in zip(history, whole.progress.history, strict=True):
        assert losses_of(entry) == pytest.approx(losses_of(expected), rel=rel)


def assert_near(history, weights, whole: Trainer) -> None:
    assert_near_losses(history, whole)
    for name, weight in snapshot(whole.model).items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4)
