"""Mixers choose the stream of a step's batch, as a pure function of the step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

GOLDEN = (5**0.5 - 1) / 2


class Mixer(Protocol):
    """Chooses the stream of each step's batch."""

    def place(self, step: int) -> tuple[int, int]:
        """Return the index of the stream and the number of the batch within it; steps count from 0."""
        ...


@dataclass(frozen=True)
class Cycle:
    """Alternates rho1 batches of the first stream with one of the others in turn (released code)."""

    rho1: int | None
    """None: only batches of the first stream (external data only, table 5); 0: none of it"""
    tasks: int = 1
    """number of streams after the first"""

    def place(self, step: int) -> tuple[int, int]:
        if self.rho1 is None:
            return 0, step
        cycle = step // (self.rho1 + 1)  # steps are optimizer steps; each cycle ends with a task batch
        if (step + 1) % (self.rho1 + 1):
            return 0, step - cycle
        turn, task = divmod(cycle, self.tasks)
        return task + bool(self.rho1), turn


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often each of several tasks gets a batch: T5's mixing rates (Raffel et al. 2020, section 3.5.2).

    The defaults are rates proportional to the numbers of examples.
    """

    limit: int = 0
    """most examples of a task that count, K in the paper; 0 for all"""
    temperature: float = 1.0
    """rates are taken to the power 1 / temperature"""
    equal: bool = False
    """all tasks alike"""

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 0:
            raise ValueError(f"rates limit {self.limit!r}: must be a whole number of 0 or more (0: no limit)")
        if not self.temperature > 0:
            raise ValueError(f"rates temperature {self.temperature!r}: must be above 0; 1 leaves the rates as they are")

    def of(self, examples: Sequence[int]) -> tuple[float, ...]:
        """Return each task's rate, given their numbers of examples; the rates sum to 1."""
        sizes = [1.0 if self.equal else float(min(count, self.limit or count)) for count in examples]
        shares = [(size / max(sizes)) ** (1 / self.temperature) for size in sizes]
        return tuple(share / sum(shares) for share in shares)


@dataclass(frozen=True)
class Shares:
    """Alternates rho1 batches of the first stream with one of the others, each at its rate.

    Task number i of a cycle is where the multiples of the golden ratio, modulo 1, fall among the rates. These points
    are spread so evenly that after n cycles no task is more than O(log n) batches from its share.
    """

    rho1: int
    """0: no first stream"""
    rates: tuple[float, ...]

    def place(self, step: int) -> tuple[int, int]:
        cycle = step // (self.rho1 + 1)
        if (step + 1) % (self.rho1 + 1):
            return 0, step - cycle
        tasks, turns = _turns(self.rates, 1 << max(8, (cycle + 1).bit_length()))
        return int(tasks[cycle]) + bool(self.rho1), int(turns[cycle])


@lru_cache(maxsize=2)
def _turns(rates: tuple[float, ...], cycles: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the task of each cycle, and how many of its batches were before, int64 (cycles,) each."""
    points = (np.arange(1, cycles + 1) * GOLDEN) % 1
    tasks = np.searchsorted(np.cumsum(rates)[:-1], points, side="right")
    turns = np.zeros(cycles, np.int64)
    for task in range(len(rates)):
        own = tasks == task
        turns[own] = np.arange(own.sum())
    return tasks, turns
