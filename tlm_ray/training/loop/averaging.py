"""Average the weights over the last steps, which is often better than any single step's weights.

Source: Izmailov et al. 2018 (stochastic weight averaging), here with the schedule's decaying rate.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MEAN = "mean_weight"  # an entry of a parameter's optimizer state, so that it is checkpointed and sharded


class Average:
    """The mean weights of a run's last steps; first: the first step to average."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, first: int):
        self.optimizer, self.first = optimizer, first

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Add the weights after a step whose gradients still exist; steps before the first are ignored."""
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
        """Swap the weights with their means; a second call swaps them back."""
        for parameter, state in self.optimizer.state.items():
            if MEAN in state:
                weight = parameter.detach().clone()
                parameter.copy_(state[MEAN])
                state[MEAN].copy_(weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the mean weights within a block."""
        self.exchange()
        yield
        self.exchange()
