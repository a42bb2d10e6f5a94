"""How fast a training goes: what was done since losses were last logged, and the mean losses of that window."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist


@dataclass(kw_only=True)
class Pace:
    """What was done since losses were last logged, without evaluations and checkpoints."""

    tokens: int = 0
    """real tokens of all workers"""
    own: int = 0
    """real tokens of this worker"""
    computed: int = 0
    """its tokens with padding"""
    real_flops: int = 0
    """operations on its own tokens, 0 where they cannot be known"""
    waiting: float = 0.0
    """seconds for batches to be made"""
    since: float = field(default_factory=lambda: time.monotonic())

    def rates(self, possible: float) -> dict[str, float]:
        """Return real tokens per second, and shares: of padding, of waiting, of `possible` operations per second."""
        seconds = max(1e-9, time.monotonic() - self.since)
        found = {
            "tokens_per_s": self.tokens / seconds,
            "padded": 1 - self.own / self.computed,
            "waiting": self.waiting / seconds,
        }
        return found | ({"utilisation": self.real_flops / seconds / possible} if self.real_flops else {})

    def kept(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; `since` is the seconds so far."""
        return asdict(self) | {"since": time.monotonic() - self.since}

    @classmethod
    def resumed(cls, kept: dict[str, Any]) -> "Pace":
        """Go on from what `kept` returned."""
        return cls(**(kept | {"since": time.monotonic() - kept["since"]}))


class LossWindow:
    """The sums of logged losses since the last entry of the history; they stay on the device, so nothing waits."""

    def __init__(self, names: list[str], *, device: str, world: int):
        self.names, self.world = names, world
        self.sums = torch.zeros(len(names), 2, dtype=torch.float64, device=device)  # of losses, and of steps

    def add(self, name: str, loss: torch.Tensor) -> None:
        """Add this worker's share of a step's mean loss."""
        place = self.names.index(name)
        self.sums[place, 0] += loss
        self.sums[place, 1] += 1 / self.world

    def means(self) -> dict[str, float]:
        """Return the mean of each loss over the steps that have it, and begin anew; all workers must ask."""
        if self.world > 1:
            dist.all_reduce(self.sums)
        sums, steps = self.sums.T.tolist()
        self.sums.zero_()
        return {name: total / count for name, total, count in zip(self.names, sums, steps, strict=True) if count}

    def kept(self) -> list[list[list[float]]]:
        """Return the sums of each worker, which a checkpoint keeps; all workers must ask."""
        if self.world == 1:
            return [self.sums.tolist()]
        found = [torch.empty_like(self.sums) for _ in range(self.world)]
        dist.all_gather(found, self.sums)
        return [sums.tolist() for sums in found]

    def resume(self, kept: list[list[list[float]]], *, rank: int) -> None:
        """Go on from what `kept` returned, by as many workers or by others."""
        own = torch.tensor(kept[rank :: self.world], dtype=torch.float64)
        self.sums.copy_(own.reshape(-1, *self.sums.shape).sum(0))
