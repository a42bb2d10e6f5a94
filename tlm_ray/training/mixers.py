"""Mixers choose the stream of a step's batch, as a pure function of the step."""

from dataclasses import dataclass
from typing import Protocol


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
