"""One worker of a training, as a value: its rank, device and memory settings."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process of a training."""

    rank: int = 0
    world: int = 1
    """number of workers"""
    device: str = "cpu"
    precision: str = "fp32"
    """fp32, or bf16 with autocast"""
    micro_rows: int = 0
    """rows processed at once (0: all of its rows of a step)"""
    packed: bool = False
    """rows are packed instead of padded"""
    sharded: bool = False
    """weights are sharded over the workers (FSDP2), else replicated (DDP)"""

    @property
    def is_replicated(self) -> bool:
        """Whether weights are replicated over several workers."""
        return self.world > 1 and not self.sharded

    def autocast(self) -> AbstractContextManager:
        """Return the context for forward passes."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)
