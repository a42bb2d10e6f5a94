"""Averaged weights: the mean of the weights after each of the last steps, often better than any of them.

Source: Izmailov et al. 2018 (stochastic weight averaging), here under the falling rate of the schedule.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MEAN = "mean_weight"  # an entry of a parameter's optimizer state, which checkpoints keep and shards share out


class Average:
    """The mean weights of a run's last steps; first: the number of the first of them."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, first: int):
        self.optimizer, self.first = optimizer, first

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Count the weights after a step whose gradients are still there; steps before the first count for nothing."""
        if step < self.first:
            return
        learned = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        for parameter in learned:
            state = self.optimizer.state[parameter]
            if MEAN in state:
                state[MEAN].lerp_(parameter.detach(), 1 / (step - self.first + 1))
            else:
                state[MEAN] = parameter.detach().clone()

    @torch.no_grad()
    def exchange(self) -> None:
        """Put the means in the place of the weights and these in theirs; called twice, it changes nothing."""
        for parameter, state in self.optimizer.state.items():
            if MEAN in state:
                weight = parameter.detach().clone()
                parameter.copy_(state[MEAN])
                state[MEAN].copy_(weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Lend the model with mean weights."""
        self.exchange()
        yield
        self.exchange()
