"""Mixers: which stream a step's batch comes from, as a pure function of the step."""

from dataclasses import dataclass
from typing import Protocol


class Mixer(Protocol):
    """Which stream a step's batch comes from."""

    def place(self, step: int) -> tuple[int, int]:
        """Return the index of the stream and the number of the batch within it; steps count from 0."""
        ...


@dataclass(frozen=True)
class Cycle:
    """rho1 batches of the first stream, then one of the others, which take turns (released code)."""

    rho1: int | None
    """None: batches of the first stream alone (external data only, table 5); 0: it is left out"""
    tasks: int = 1
    """streams behind the first"""

    def place(self, step: int) -> tuple[int, int]:
        if self.rho1 is None:
            return 0, step
        cycle = step // (self.rho1 + 1)  # a step is an optimizer step; the task's batch ends the cycle
        if (step + 1) % (self.rho1 + 1):
            return 0, step - cycle
        turn, task = divmod(cycle, self.tasks)
        return task + bool(self.rho1), turn
