"""Checkpoints: weights and optimizer state as safetensors, the rest as JSON. Nothing is ever unpickled.

The folder of a run's checkpoints is itself the list of them. Ray Train's own list is a file that it overwrites in
place: a controller killed meanwhile, or a disk then full, would lose every checkpoint with it.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn

from tlm_ray import storage
from tlm_ray.listing import base_of, list_files, name_below
from tlm_ray.training.sharding import shared_like, whole

STATE = "state.json"
# A checkpoint comes at each evaluation, and after so many seconds, or so many times what writing the last one took,
# since a node may be lost at any time: a minute of work, and a tenth of it for checkpoints, at most
EVERY_S, TIMES = 45.0, 10.0
KEPT = 2  # the newest, and one to go back to if it is damaged


class DamagedCheckpoint(ValueError):
    """A checkpoint that is not what was written, with the file and what is wrong with it."""


@dataclass(kw_only=True)
class Progress:
    """How far a run is, and what it has seen: all that a checkpoint carries beside tensors."""

    step: int = 0
    """optimizer steps done"""
    history: list[dict[str, Any]] = field(default_factory=list)
    """one entry per logged step or evaluation"""
    best_step: int = 0
    """the step of the best score of the dev set"""
    best_score: float = -101.0
    """below any score at first (a Matthews correlation reaches -100), so that the first one counts"""
    tokens: int = 0
    """real tokens trained on, by all workers"""
    flops: int = 0
    """operations of all forward and backward passes, 0 where they cannot be known"""
    seconds: float = 0.0
    """time spent, over all attempts"""
    damaged: list[str] = field(default_factory=list)
    """what was wrong with checkpoints that a resumed run passed over"""
    unlogged: dict[str, Any] = field(default_factory=dict)
    """losses and pace since the last entry of the history, of a checkpoint between two"""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A copy of a run's state in main memory: its progress, and its tensors by the file that they go to."""

    progress: dict[str, Any]
    tensors: dict[str, dict[str, torch.Tensor]]


def take_checkpoint(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    best: dict[str, torch.Tensor] | None,
) -> Checkpoint:
    """Copy a run's state, so that training may go on; where weights are shared out, all workers must.

    best is a `snapshot`, which nothing changes, and not copied.
    """
    tensors = {
        "model.safetensors": snapshot(model),
        "optimizer.safetensors": _copies(_optimizer_tensors(model, optimizer)),
    }
    if best is not None:
        tensors["best.safetensors"] = best
    return Checkpoint(progress=asdict(progress), tensors=tensors)


def save_checkpoint(folder: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder of its own; `state.json`, with the size and sha256 of all else, is last.

    OSError names the file that cannot be written; then nothing of the checkpoint is left.
    """
    storage.delete(folder)  # what a write that was cut off has left, or one that is damaged
    files = {}
    try:
        for name, tensors in checkpoint.tensors.items():
            data = save(tensors)
            storage.write_bytes(storage.join(folder, name), data)
            files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        storage.write_record(storage.join(folder, STATE), {"progress": checkpoint.progress, "files": files})
    except OSError:
        with contextlib.suppress(OSError):
            storage.delete(folder)
        raise


def read_checkpoint(folder: str) -> Checkpoint:
    """Read what `save_checkpoint` wrote; DamagedCheckpoint if a byte of it is missing or another."""
    uri = storage.join(folder, STATE)
    try:
        state = storage.read_record(uri)
    except ValueError as error:
        raise DamagedCheckpoint(f"{uri} is not as it was written") from error
    tensors = {name: load(_read_whole(storage.join(folder, name), **file)) for name, file in state["files"].items()}
    return Checkpoint(progress=state["progress"], tensors=tensors)


def load_checkpoint(
    folder: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """Restore what `save_checkpoint` wrote, exactly; DamagedCheckpoint, and nothing changed, if it is not whole."""
    checkpoint = read_checkpoint(folder)
    load_weights(model, checkpoint.tensors["model.safetensors"])
    _load_optimizer(model, optimizer, checkpoint.tensors["optimizer.safetensors"])
    return Progress(**checkpoint.progress), checkpoint.tensors.get("best.safetensors")


class Checkpoints:
    """The newest checkpoints of one run in a folder, written in the background one after the other.

    The training waits for a copy in main memory, and for the checkpoint before it if that is still being written: so
    memory holds one checkpoint, and one file of it as bytes, at a time.
    """

    def __init__(self, folder: str):
        self.folder, self.writer = folder, ThreadPoolExecutor(1)
        self.pending: Future[None] | None = None
        self.last, self.seconds = time.monotonic(), 0.0

    def save(self, take: Callable[[], Checkpoint]) -> None:
        """Take a checkpoint and start to write it; OSError if the one before could not be written."""
        self.wait()
        self.last = time.monotonic()
        self.pending = self.writer.submit(self._write, take())

    def is_late(self) -> bool:
        """Say whether the last checkpoint was taken so long ago that there should be another."""
        return time.monotonic() - self.last > max(EVERY_S, TIMES * self.seconds)

    def wait(self) -> None:
        """Wait until all is written; OSError names the file that could not be."""
        if self.pending is not None:
            self.pending.result()

    def newest_first(self) -> list[str]:
        """List the checkpoints that were written to the end, whole or damaged since."""
        base, end = base_of(self.folder), f"/{STATE}"
        found = [name_below(base, file.uri) for file in list_files(self.folder, end, missing_ok=True)]
        return [storage.join(self.folder, name.removesuffix(end)) for name in reversed(found)]

    def newest_whole(self) -> tuple[str | None, list[str]]:
        """Find the newest checkpoint that is whole, None if none is, and what is wrong with those after it."""
        damaged: list[str] = []
        for folder in self.newest_first():
            try:
                read_checkpoint(folder)
            except DamagedCheckpoint as error:
                damaged.append(storage.shown(str(error)))  # it comes to stand in the record
            else:
                return folder, damaged
        return None, damaged

    def _write(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(storage.join(self.folder, f"checkpoint_{checkpoint.progress['step']:09}"), checkpoint)
        for folder in self.newest_first()[KEPT:]:
            storage.delete(folder)
        self.seconds = time.monotonic() - self.last


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy a model's weights to main memory, shared tensors once."""
    return _copies(_tensors(model))


def load_weights(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Put weights taken by `snapshot` or read from a checkpoint into a model; shared tensors follow."""
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(shared_like(tensors[name], tensor))


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, those shared by several modules under their first name only."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in found.items()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return each parameter's state, in one order on all workers, which gather what is shared out one by one.

    A resumed optimizer's own order is that in which safetensors gave its tensors, another in each process.
    """
    return {
        f"{name}.{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in sorted(optimizer.state[parameter].items())
        if value is not None
    }


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Give each parameter the state that was kept under its name."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _, entry = key.rpartition(".")
        states.setdefault(name, {})[entry] = value
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {entry: _placed(value, parameter) for entry, value in states.get(name, {}).items()}


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Put a parameter's state where the parameter is; counts, which are scalars, stay on the CPU beside a CPU's."""
    return value if value.ndim == 0 and not parameter.is_cuda else shared_like(value, parameter)


def _copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: whole(tensor).to("cpu", copy=True) for name, tensor in tensors.items()}


def _read_whole(uri: str, *, size: int, sha256: str) -> bytes:
    if not storage.exists(uri):
        raise DamagedCheckpoint(f"{uri} is missing")
    data = storage.read_bytes(uri)
    if len(data) != size:
        raise DamagedCheckpoint(f"{uri} has {len(data):,} bytes instead of {size:,}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DamagedCheckpoint(f"{uri} is not as it was written (its sha256 differs)")
    return data
