"""Optimizers as parts of a recipe; to add your own, write a frozen dataclass with `make`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn


class Optimizer(Protocol):
    """The protocol of an optimizer; its state must be tensors per parameter, which checkpoints store by name."""

    def make(self, model: "nn.Module", *, weight_decay: float) -> "torch.optim.Optimizer":
        """Return the optimizer of a model's parameters; the schedule sets `lr` of all its groups."""
        ...


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019) with the released code's defaults."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6

    def make(self, model: "nn.Module", *, weight_decay: float) -> "torch.optim.Optimizer":
        """Return fused AdamW, with weight decay except for biases and norms."""
        import torch

        groups = parameter_groups(model, weight_decay)
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.epsilon, fused=True)


def parameter_groups(model: "nn.Module", weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups without weight decay for biases and norms, the 1-d parameters (released code)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
