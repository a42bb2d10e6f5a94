"""Compute the cross-entropy of a projection to the vocabulary without fp32 logits.

The forward pass replaces the logits, in place, by the gradient of the loss: a row's softmax, minus 1 at its target. So
exponentials are computed once, and memory holds one array of the logits' size, in the precision of the product. The
backward pass is two matrix products, with the loss scale in the smaller factor.
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


class ProjectedCrossEntropy(torch.autograd.Function):
    """`apply(hidden, weight, bias, targets)` returns the sum of the rows' cross-entropies of hidden @ weight.T + bias.

    hidden: (rows, width); rows without a target are ignored. weight: (vocabulary, width). bias: (vocabulary,) or
    None. targets: int64, of the first rows. Returns a float32 scalar. Under autocast the products use its precision;
    bias and softmax use float32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
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
            loss += _loss_and_gradient(some, bias, own)
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


def _loss_and_gradient(logits: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
    """Return the sum of the rows' losses; the logits, still without bias, are overwritten by their gradient."""
    exact = logits.float()
    if bias is not None:
        exact += bias
    target = exact.gather(1, targets[:, None])
    most = exact.amax(1, keepdim=True)
    share = exact.sub_(most).exp_()
    total = share.sum(1, keepdim=True)
    share /= total
    share.scatter_add_(1, targets[:, None], torch.full_like(target, -1.0))
    logits.copy_(share)
    return (total.log() + most - target).sum()
