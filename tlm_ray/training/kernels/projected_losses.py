"""Compute losses over the vocabulary without fp32 logits.

The forward pass replaces the logits, in place, by the gradient of the loss: a row's softmax, minus 1 at its target or
minus the teacher's softmax. So exponentials are computed once, and memory holds one array of the logits' size, in the
precision of the product. The backward pass is two matrix products, with the loss scale in the smaller factor.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

CACHE_BYTES = 1 << 21  # bytes of float32 logits processed at once on a CPU: the size of an L2 cache
ROWS_TO = 32  # rows are padded to a multiple, so that few shapes occur


def filled(places: torch.Tensor) -> torch.Tensor:
    """Return the indices of predictions, (predictions,), padded to a multiple of ROWS_TO with index 0."""
    return nn.functional.pad(places, (0, -len(places) % ROWS_TO))


class Projected(torch.autograd.Function):
    """Sums a loss of hidden @ weight.T + bias over rows; a subclass says which loss.

    `apply(hidden, weight, bias, targets)` returns a float32 scalar. hidden: (rows, width); rows without a target are
    ignored. weight: (vocabulary, width). bias: (vocabulary,) or None. targets: of the first rows, without a gradient.
    Under autocast the products use its precision; bias and softmax use float32.
    """

    @staticmethod
    def overwrite(logits: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of some rows' losses; the logits, still without bias, are overwritten by their gradient."""
        raise NotImplementedError

    @classmethod
    def forward(
        cls, ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
    ) -> torch.Tensor:
        device, rows = hidden.device.type, len(targets)
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
        low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
        logits = low_hidden @ low_weight.T
        logits[rows:] = 0
        loss = torch.zeros((), device=hidden.device)
        at_once = max(1, CACHE_BYTES // (4 * len(weight)) if device == "cpu" else rows)
        for some, own in zip(logits[:rows].split(at_once), targets.split(at_once), strict=True):
            loss += cls.overwrite(some, bias, own)
        ctx.save_for_backward(low_hidden, low_weight, logits)
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        low_hidden, weight, gradient = ctx.saved_tensors
        by_hidden, by_weight, by_bias = ctx.dtypes
        bias = None if by_bias is None else (gradient.sum(0) * scale).to(by_bias)
        scaled = (low_hidden * scale).to(low_hidden.dtype)
        return ((gradient @ weight) * scale).to(by_hidden), (gradient.T @ scaled).to(by_weight), bias, None


class ProjectedCrossEntropy(Projected):
    """Sums cross-entropies. targets: indices into the vocabulary, int64 (rows,)."""

    @staticmethod
    def overwrite(logits: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
        exact = _with_bias(logits, bias)
        target = exact.gather(1, targets[:, None])
        most = exact.amax(1, keepdim=True)
        share = exact.sub_(most).exp_()
        total = share.sum(1, keepdim=True)
        share /= total
        share.scatter_add_(1, targets[:, None], torch.full_like(target, -1.0))
        logits.copy_(share)
        return (total.log() + most - target).sum()


class ProjectedDivergence(Projected):
    """Sums Kullback-Leibler divergences from a teacher's distributions. targets: its logits, (rows, vocabulary)."""

    @staticmethod
    def overwrite(logits: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
        own, known = _with_bias(logits, bias).log_softmax(1), targets.float().log_softmax(1)
        share = known.exp()
        loss = (share * known.sub_(own)).sum()
        logits.copy_(own.exp_().sub_(share))
        return loss


def _with_bias(logits: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return float32 logits with their bias; float32 ones are changed in place."""
    exact = logits.float()
    return exact if bias is None else exact.add_(bias)
