"""Schedules: steps and learning rates of a stage; imports no torch."""

from dataclasses import dataclass, field, replace
from typing import Self

from tlm_ray.identity import LATER, NO_RESULT


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps and learning rates of a stage; to change the shape, derive from it and override `rate`."""

    steps: int
    """optimizer steps"""
    batch_rows: int
    """rows per step, over all workers"""
    learning_rate: float
    """peak learning rate, reached after the warm-up; it decays linearly to 0 at the last step"""
    warmup_steps: int
    """steps over which the learning rate rises linearly from 0"""
    weight_decay: float
    """weight decay of matrices; biases and norms have none"""
    evaluate_every: int
    """steps between evaluations on dev, each with a checkpoint"""
    log_every: int = field(default=10, metadata=NO_RESULT)
    """steps between history entries"""
    averaged: float = field(default=0.0, metadata=LATER)
    """the result is the mean of the weights over this last share of steps (`averaging`); 0: the last weights"""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_rows", "evaluate_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps}: must lie between 0 and steps ({self.steps})")
        if not 0 <= self.averaged <= 1:
            raise ValueError(f"averaged {self.averaged}: must be a share of the steps, 0 to 1, such as 0.5")

    @property
    def first_averaged(self) -> int:
        """The first step to average, counted from 0."""
        return self.steps - round(self.averaged * self.steps)

    def of_steps(self, steps: int) -> Self:
        """Return a schedule of another length, with proportional warm-up."""
        return replace(self, steps=steps, warmup_steps=self.warmup_steps * steps // self.steps)

    def cut_to(self, share: float) -> Self:
        """Return a schedule of a share of the steps, with proportional warm-up and evaluations."""
        steps = max(1, round(share * self.steps))
        return replace(self.of_steps(steps), evaluate_every=max(1, self.evaluate_every * steps // self.steps))

    def of_rows(self, batch_rows: int) -> Self:
        """Return a schedule of other rows per step, which takes about as many rows in all.

        ValueError if that is less than one step.
        """
        if batch_rows > self.steps * self.batch_rows:
            all_rows = f"{self.steps:,} steps of {self.batch_rows:,} rows"
            raise ValueError(f"batch_rows {batch_rows}: is more than all rows of a stage, {all_rows}; give fewer")
        return replace(self.cut_to(self.batch_rows / batch_rows), batch_rows=batch_rows)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        return self.learning_rate * (self.steps - step) / max(1, self.steps - self.warmup_steps)
