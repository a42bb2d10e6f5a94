"""The last layer of a regression: it learns numbers of mean 0 and standard deviation 1, whatever the labels' unit."""

import math

import numpy as np
import torch
from torch import nn

SMALLEST = 1e-6  # standard deviation relative to the mean, below which float32 cannot tell numbers apart


class Scaled(nn.Linear):
    """Replaces a linear layer of one output and shares its parameters; returns that output times `sd` plus `mean`.

    It computes in float32 under autocast too: bfloat16 has 8 bits, too few for a year.
    """

    def __init__(self, last: nn.Linear):
        super().__init__(1, 1, device="meta")
        self.in_features, self.weight, self.bias = last.in_features, last.weight, last.bias
        self.mean, self.sd = 0.0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = (x.float() * self.weight).sum(-1, keepdim=True)  # autocast would round a product of matrices
        return (number if self.bias is None else number + self.bias) * self.sd + self.mean

    @torch.no_grad()
    def fold(self) -> None:
        """Move scale and mean into the parameters, with which a plain linear layer then returns the same."""
        self.weight.mul_(self.sd)
        if self.bias is not None:
            self.bias.mul_(self.sd).add_(self.mean)
        self.mean, self.sd = 0.0, 1.0


def with_scaled(model: nn.Module) -> nn.Module:
    """Return a model with each linear layer of one output replaced by `Scaled`, in place."""
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear) and module.out_features == 1:
                setattr(parent, name, Scaled(module))
    return model


def scale_to(layers: list[Scaled], labels: np.ndarray) -> None:
    """Let the sum of some layers' outputs be learned in units of the labels' standard deviation from their mean.

    Without a bias, as in decoders' classifiers, a layer cannot export a mean, so the deviation is from 0.
    """
    mean = 0.0 if layers[0].bias is None else float(labels.mean(dtype=np.float64))
    sd = math.sqrt(np.square(labels - mean, dtype=np.float64).mean())
    for layer in layers:
        layer.mean, layer.sd = 0.0, sd if sd > SMALLEST * abs(mean) else 1.0
    layers[0].mean = mean
