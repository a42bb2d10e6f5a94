"""Optimizers as parts of a recipe; to add your own, write a frozen dataclass with `make`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tlm_ray.identity import LATER

if TYPE_CHECKING:
    import torch
    from torch import nn


SHARE, FIRST = "share", "first"  # of a parameter group: share of the schedule's rate, and first step that learns


class Optimizer(Protocol):
    """The protocol of an optimizer; its state must be tensors per parameter, which checkpoints store by name."""

    def make(self, model: "nn.Module", *, weight_decay: float) -> "torch.optim.Optimizer":
        """Return the optimizer of a model's parameters; the schedule sets `lr` of its groups (`rate_of`)."""
        ...


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019) with the released code's defaults."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    layer_decay: float = field(default=1.0, metadata=LATER)
    """learning rate of a layer relative to that of the next (Clark et al. 2020: 0.8; Howard and Ruder 2018: 1 / 2.6)"""
    unfreeze_every: int = field(default=0, metadata=LATER)
    """steps after which a further layer learns, from the heads down (Howard and Ruder 2018); 0: all from the start"""

    def __post_init__(self) -> None:
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"optimizer layer_decay {self.layer_decay!r}: must be above 0 and at most 1, such as 0.8")
        if self.unfreeze_every < 0:
            raise ValueError(f"optimizer unfreeze_every {self.unfreeze_every!r}: must be 0 or more steps")

    def make(self, model: "nn.Module", *, weight_decay: float) -> "torch.optim.Optimizer":
        """Return fused AdamW, with weight decay except for biases and norms."""
        import torch

        by_layer = self.layer_decay < 1 or self.unfreeze_every
        groups = self._groups_by_layer(model, weight_decay) if by_layer else parameter_groups(model, weight_decay)
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.epsilon, fused=True)

    def _groups_by_layer(self, model: "nn.Module", weight_decay: float) -> list[dict[str, Any]]:
        """Return parameter groups per depth, with the share of the rate (SHARE) and the first step (FIRST)."""
        from tlm_ray.training.encoders.depths import depths_of

        depths, groups = depths_of(model), []
        deepest = max(depths.values())
        for depth in sorted(set(depths.values())):
            own = [p for name, p in model.named_parameters() if depths[name] == depth]
            above = deepest - depth
            how = {SHARE: self.layer_decay**above, FIRST: self.unfreeze_every * above}
            groups += [group | how for group in _groups(own, weight_decay)]
        return groups


def rate_of(group: dict[str, Any], rate: float, step: int) -> float:
    """Return the learning rate of a parameter group at a step, given the schedule's."""
    return rate * group.get(SHARE, 1.0) if step >= group.get(FIRST, 0) else 0.0


def parameter_groups(model: "nn.Module", weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups without weight decay for biases and norms, the 1-d parameters (released code)."""
    return _groups(list(model.parameters()), weight_decay)


def _groups(parameters: list[Any], weight_decay: float) -> list[dict[str, Any]]:
    parameters = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
