"""One worker of a training, as a value: its rank, device and memory settings."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

# Tokens per forward pass on a CPU. A training of MiniLM on 32 rows of 512 tokens grew to 12.8 GB, in passes of 8 rows
# to 5.8 GB. Forward and backward took 5.40 s at once, 5.21 s in parts of 8 rows (AVX-512 BF16, bf16, one thread).
TOKENS_AT_ONCE = 4096


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
    """rows processed at once (0: all of its rows of a step; on a CPU, unless sharded, those of TOKENS_AT_ONCE)"""
    packed: bool = False
    """rows are packed instead of padded"""
    sharded: bool = False
    """weights are sharded over the workers (FSDP2), else replicated (DDP)"""

    @property
    def is_replicated(self) -> bool:
        """Whether weights are replicated over several workers."""
        return self.world > 1 and not self.sharded

    def rows_at_once(self, rows: int, tokens: int) -> int:
        """Return how many of a batch's rows to process at once, 0 for all; tokens: of the batch, with its padding."""
        if self.micro_rows or self.sharded or torch.device(self.device).type != "cpu":
            return self.micro_rows
        return max(1, rows * TOKENS_AT_ONCE // tokens)

    def autocast(self) -> AbstractContextManager:
        """Return the context for forward passes."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)
