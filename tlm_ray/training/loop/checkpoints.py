"""Write and read checkpoints: weights and optimizer state as safetensors, the rest as JSON, nothing pickled.

The list of checkpoints is the folder itself. Ray Train's own list is a file that it overwrites in place: a killed
controller or a full disk would lose every checkpoint.
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
from tlm_ray.storage.listing import base_of, list_files, name_below
from tlm_ray.training.loop.sharding import shared_like, whole

STATE = "state.json"
# A checkpoint is written at each evaluation, and after the longer of EVERY_S seconds and TIMES times the last writing
# time. A node may be lost at any time. This limits the lost work to about a minute, and writing to a tenth of the time.
EVERY_S, TIMES = 45.0, 10.0
KEPT = 2  # the newest, and one to fall back to if it is corrupt


class DamagedCheckpoint(ValueError):
    """A corrupt checkpoint; the message names the file and the problem."""


@dataclass(kw_only=True)
class Progress:
    """The progress and history of a run: all content of a checkpoint besides tensors."""

    step: int = 0
    """optimizer steps done"""
    history: list[dict[str, Any]] = field(default_factory=list)
    """an entry per logged step or evaluation"""
    best_step: int = 0
    """the step of the best score of the dev set"""
    best_score: float = -101.0
    """the best score of the dev set; of no evaluation yet if `best_step` is 0"""
    tokens: int = 0
    """real tokens trained on, by all workers"""
    flops: int = 0
    """operations of all forward and backward passes, 0 if unknown"""
    seconds: float = 0.0
    """seconds spent, over all attempts"""
    damaged: list[str] = field(default_factory=list)
    """problems of corrupt checkpoints that a resumed run skipped"""
    unlogged: dict[str, Any] = field(default_factory=dict)
    """losses and pace since the last history entry, for a checkpoint between two entries"""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A copy of a run's state in memory: its progress, and its tensors by target file."""

    progress: dict[str, Any]
    tensors: dict[str, dict[str, torch.Tensor]]


def take_checkpoint(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    best: dict[str, torch.Tensor] | None,
) -> Checkpoint:
    """Copy a run's state, so that training can continue; with sharded weights, all workers must call it.

    best: a `snapshot`; it is immutable and not copied.
    """
    tensors = {
        "model.safetensors": snapshot(model),
        "optimizer.safetensors": _copies(_optimizer_tensors(model, optimizer)),
    }
    if best is not None:
        tensors["best.safetensors"] = best
    return Checkpoint(progress=asdict(progress), tensors=tensors)


def save_checkpoint(folder: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a folder of its own; `state.json`, with all files' sizes and sha256, is written last.

    OSError names the file that cannot be written; the incomplete checkpoint is deleted.
    """
    storage.delete(folder)  # remains of an interrupted write, or a corrupt checkpoint
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
    """Read a checkpoint by `save_checkpoint`; DamagedCheckpoint if it is incomplete or corrupt."""
    uri = storage.join(folder, STATE)
    try:
        state = storage.read_record(uri)
    except ValueError as error:
        raise DamagedCheckpoint(f"{uri} is corrupt") from error
    tensors = {name: load(_read_whole(storage.join(folder, name), **file)) for name, file in state["files"].items()}
    return Checkpoint(progress=state["progress"], tensors=tensors)


def load_checkpoint(
    folder: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """Restore a checkpoint exactly; DamagedCheckpoint, without any change, if it is incomplete or corrupt."""
    checkpoint = read_checkpoint(folder)
    load_weights(model, checkpoint.tensors["model.safetensors"])
    _load_optimizer(model, optimizer, checkpoint.tensors["optimizer.safetensors"])
    return Progress(**checkpoint.progress), checkpoint.tensors.get("best.safetensors")


class Checkpoints:
    """The newest checkpoints of a run in a folder, written one at a time in the background.

    The training waits only for a copy in memory, and for the previous checkpoint if it is still being written. So
    memory holds one checkpoint, and one of its files as bytes, at a time.
    """

    def __init__(self, folder: str):
        self.folder, self.writer = folder, ThreadPoolExecutor(1)
        self.pending: Future[None] | None = None
        self.last, self.seconds = time.monotonic(), 0.0

    def save(self, take: Callable[[], Checkpoint]) -> None:
        """Copy the state and start writing it; OSError if the previous checkpoint could not be written."""
        self.wait()
        self.last = time.monotonic()
        self.pending = self.writer.submit(self._write, take())

    def is_late(self) -> bool:
        """Return whether the last checkpoint is so old that another is due."""
        return time.monotonic() - self.last > max(EVERY_S, TIMES * self.seconds)

    def wait(self) -> None:
        """Wait until all checkpoints are written; OSError names a file that could not be."""
        if self.pending is not None:
            self.pending.result()

    def newest_first(self) -> list[str]:
        """List the checkpoints that were written completely, even if corrupted since."""
        base, end = base_of(self.folder), f"/{STATE}"
        found = [name_below(base, file.uri) for file in list_files(self.folder, end, missing_ok=True)]
        return [storage.join(self.folder, name.removesuffix(end)) for name in reversed(found)]

    def newest_whole(self) -> tuple[str | None, list[str]]:
        """Return the newest valid checkpoint, or None, and the problems of newer ones."""
        damaged: list[str] = []
        for folder in self.newest_first():
            try:
                read_checkpoint(folder)
            except DamagedCheckpoint as error:
                damaged.append(storage.shown(str(error)))  # because it is written to the record
            else:
                return folder, damaged
        return None, damaged

    def _write(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(storage.join(self.folder, f"checkpoint_{checkpoint.progress['step']:09}"), checkpoint)
        for folder in self.newest_first()[KEPT:]:
            storage.delete(folder)
        self.seconds = time.monotonic() - self.last


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy a model's weights to memory, shared tensors once."""
    return _copies(_tensors(model))


def load_weights(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Load weights of a `snapshot` or checkpoint into a model; shared tensors follow."""
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(shared_like(tensors[name], tensor))


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers, shared ones under their first name only."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in found.items()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return each parameter's optimizer state, in the same order on all workers, which gather sharded tensors in turn.

    A resumed optimizer's own order is that of safetensors, which differs between processes.
    """
    return {
        f"{name}.{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in sorted(optimizer.state[parameter].items())
        if value is not None
    }


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Load each parameter's optimizer state by its name."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _, entry = key.rpartition(".")
        states.setdefault(name, {})[entry] = value
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {entry: _placed(value, parameter) for entry, value in states.get(name, {}).items()}


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Move a parameter's state to its device and sharding; scalar counts of a CPU's parameter stay as they are."""
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
        raise DamagedCheckpoint(f"{uri} is corrupt (its sha256 differs)")
    return data
