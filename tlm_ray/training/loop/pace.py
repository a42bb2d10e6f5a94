"""Measure a training's speed and mean losses since the last log."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist


@dataclass(kw_only=True)
class Pace:
    """The work since the last log, without evaluations and checkpoints."""

    tokens: int = 0
    """non-padding tokens of all workers"""
    own: int = 0
    """non-padding tokens of this worker"""
    computed: int = 0
    """tokens of this worker with padding"""
    real_flops: int = 0
    """operations on its non-padding tokens, 0 if unknown"""
    waiting: float = 0.0
    """seconds of waiting for batches"""
    since: float = field(default_factory=lambda: time.monotonic())

    def rates(self, possible: float) -> dict[str, float]:
        """Return non-padding tokens per second, and the shares of padding, waiting and `possible` operations/s."""
        seconds = max(1e-9, time.monotonic() - self.since)
        found = {
            "tokens_per_s": self.tokens / seconds,
            "padded": 1 - self.own / self.computed,
            "waiting": self.waiting / seconds,
        }
        return found | ({"utilisation": self.real_flops / seconds / possible} if self.real_flops else {})

    def kept(self) -> dict[str, Any]:
        """Return the state for a checkpoint; `since` is the seconds so far."""
        return asdict(self) | {"since": time.monotonic() - self.since}

    @classmethod
    def resumed(cls, kept: dict[str, Any]) -> "Pace":
        """Resume from the result of `kept`."""
        return cls(**(kept | {"since": time.monotonic() - kept["since"]}))


class LossWindow:
    """Sums of losses since the last history entry; they stay on the device, to avoid synchronisation."""

    def __init__(self, names: list[str], *, device: str, world: int):
        self.names, self.world = names, world
        self.sums = torch.zeros(
            len(names), 2, dtype=torch.float64, device=device
        )  # sums of losses, and numbers of steps

    def add(self, name: str, loss: torch.Tensor) -> None:
        """Add this worker's share of a step's mean loss."""
        place = self.names.index(name)
        self.sums[place, 0] += loss
        self.sums[place, 1] += 1 / self.world

    def means(self) -> dict[str, float]:
        """Return the mean of each loss over the steps that have it, and reset; all workers must call it."""
        if self.world > 1:
            dist.all_reduce(self.sums)
        sums, steps = self.sums.T.tolist()
        self.sums.zero_()
        return {name: total / count for name, total, count in zip(self.names, sums, steps, strict=True) if count}

    def kept(self) -> list[list[list[float]]]:
        """Return each worker's sums, for a checkpoint; all workers must call it."""
        if self.world == 1:
            return [self.sums.tolist()]
        found = [torch.empty_like(self.sums) for _ in range(self.world)]
        dist.all_gather(found, self.sums)
        return [sums.tolist() for sums in found]

    def resume(self, kept: list[list[list[float]]], *, rank: int) -> None:
        """Resume from the result of `kept`, for any number of workers."""
        own = torch.tensor(kept[rank :: self.world], dtype=torch.float64)
        self.sums.copy_(own.reshape(-1, *self.sums.shape).sum(0))
