"""One worker of a training, as a value: its place among the workers, and what it computes on."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process among the workers of a training."""

    rank: int = 0
    world: int = 1
    """number of workers"""
    device: str = "cpu"
    precision: str = "fp32"
    """fp32, or bf16 by autocast"""
    micro_rows: int = 0
    """rows that go through the model at once, 0 for all of its share of a step"""
    packed: bool = False
    """rows are laid one after another instead of padded"""
    sharded: bool = False
    """weights are shared out over the workers (FSDP2), else copied to each (DDP)"""

    @property
    def is_replicated(self) -> bool:
        """Whether each of several workers has a copy of the weights."""
        return self.world > 1 and not self.sharded

    def autocast(self) -> AbstractContextManager:
        """Return the context in which forward passes run."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)
