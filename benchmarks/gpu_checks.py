"""Is training right on a device? Checks that `gpu.py` runs where a GPU is and the tests on any processor."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.loop.checkpoints import save_checkpoint
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import GENERAL, NUMBERS, TASK, StageOne
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

GEOMETRY = Geometry(layers=2, width=64, heads=2, intermediate=128, positions=64, dropout=0.0)
SCHEDULE = Schedule(
    steps=16, batch_rows=16, learning_rate=1e-3, warmup_steps=2, weight_decay=0.01, evaluate_every=8, log_every=1
)
LABELS, WORDS = ("a", "b", "c"), 500
ROUNDING_BF16 = 3e-2  # relative difference of losses: a product's factors have 8 bits
ROUNDING_FP32 = 1e-3  # for sums in another order
LOSSES = ("general_mlm", "task_mlm", "task")


def trainer(worker: Worker, family: str = "bert") -> Trainer:
    """Return a small stage one, identical on any device."""
    draw = np.random.default_rng(0)

    def rows(count: int, *, labels: bool) -> Blocks:
        lengths = draw.integers(8, 64, count)
        tokens = draw.integers(5, WORDS, lengths.sum()).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Blocks(tokens, offsets, labels=draw.integers(0, 3, count) if labels else None)

    geometry = replace(GEOMETRY, family=family)
    settings = StageOne(
        start=Scratch(geometry), schedule=SCHEDULE, precision=worker.precision, seed=0, k=1, rho1=2, rho2=20.0,
        weighting="released",
    )  # fmt: skip
    blocks = {GENERAL: rows(400, labels=False), TASK: rows(100, labels=True)}
    streams = tuple(
        Stream(name=name, number=NUMBERS[name], blocks=blocks[name], loss=loss, batch_rows=16, seed=0)
        for name, loss in settings.losses.items()
    )
    vocabulary = Vocabulary(size=WORDS, pad_id=0, mask_id=4, special_ids=(0, 1, 2, 3, 4))
    config = scratch_config(geometry, vocabulary=WORDS, pad_id=0, labels=LABELS)
    model = JointModel(RandomWeights(config, seed=0), settings.heads, family=geometry.of_family)
    return Trainer(
        model, Batches(streams=streams, mixer=settings.mixer, vocabulary=vocabulary, seed=0), SCHEDULE, worker
    )


def losses(done: Trainer) -> np.ndarray:
    """Return the losses of all steps, (steps, losses), NaN where a step has none."""
    return np.array([[entry.get(name, np.nan) for name in LOSSES] for entry in done.progress.history])


def whole(worker: Worker, family: str = "bert") -> np.ndarray:
    """Train to the end; return the losses."""
    done = trainer(worker, family)
    done.run(lambda take: None)
    return losses(done)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest relative difference of losses."""
    return float(np.nanmax(np.abs(one - other) / np.abs(other)))


def precisions(device: str) -> dict[str, Any]:
    """Check that losses in bf16 equal those in fp32 on a CPU, within bf16's rounding."""
    return _agree(whole(Worker(device=device, precision="bf16")), whole(Worker()), ROUNDING_BF16)


def layouts(device: str) -> dict[str, Any]:
    """Check that packed rows have the losses of padded ones, in both families."""
    found = {}
    for family in ("bert", "modernbert"):
        packed, padded = (whole(Worker(device=device, packed=is_packed), family) for is_packed in (True, False))
        found[family] = _agree(packed, padded, ROUNDING_FP32)["apart"]
    return {"apart": max(found.values())}


def resumed(device: str) -> dict[str, Any]:
    """Check that a run resumed from a checkpoint has the losses of an uninterrupted one."""
    worker = Worker(device=device)
    with tempfile.TemporaryDirectory() as folder:
        first = trainer(worker)

        first.run(lambda take: save_checkpoint(folder, take()))
        second = trainer(worker)
        second.resume(folder)
        second.run(lambda take: None)
    return _agree(losses(second), losses(first), 0.0 if device == "cpu" else ROUNDING_FP32)


def micro(device: str) -> dict[str, Any]:
    """Check that gradients accumulated over parts of a step equal those of the whole."""
    return _agree(whole(Worker(device=device, micro_rows=5)), whole(Worker(device=device)), ROUNDING_FP32)


def _agree(found: np.ndarray, expected: np.ndarray, limit: float) -> dict[str, Any]:
    assert found.shape == expected.shape, f"{found.shape} losses instead of {expected.shape}"
    assert np.isfinite(found).any() and apart(found, expected) <= limit, (
        f"relative difference {apart(found, expected):.1e}"
    )
    return {"apart": apart(found, expected)}


CHECKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "bf16 on the device, fp32 on a CPU": precisions,
    "packed, padded": layouts,
    "resumed, whole": resumed,
    "in parts, at once": micro,
}
