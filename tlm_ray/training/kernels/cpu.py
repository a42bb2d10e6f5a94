"""Faster training on CPUs than torch's own: dropout, linear layers, attention, the token table's gradient."""

from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

ATTENTION = "plain_cpu"
SCORES = 2**20  # of rows attended at a time, 2 MB in bf16 and 4 MB in fp32, so that caches hold them


def drop(x: torch.Tensor, p: float) -> torch.Tensor:
    """Apply dropout: zero each element with probability p, in steps of 2^-16, and divide the others by 1 - p.

    Each 64-bit random number serves four elements: 1 ns per element, against torch's 6 ns.
    """
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    draws = draws[: x.numel()].view(x.shape)
    kept = torch.ge(draws, round(p * 2**16) - 2**15, out=draws)  # 1 or 0; booleans convert 16 times as slowly
    return x * kept.to(x.dtype).mul_(1 / (1 - p))


class Dropout(nn.Module):
    """Dropout by `drop`."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return drop(x, self.p) if self.training and self.p else x


class Biased(torch.autograd.Function):
    """`apply(x, weight, bias)` returns x @ weight.T + bias, bit-identical to torch's own.

    x: (..., inputs). torch copies the bias into every row of the result first: 40 ms for 4,096 rows from 768 to 3,072.
    Here oneDNN adds it during the product: 15 ms.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows, (of_x, of_weight, of_bias) = gradient.reshape(-1, gradient.shape[-1]), ctx.needs_input_grad
        return (  # weights under an adapter are frozen
            (rows @ weight).view_as(x) if of_x else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


class Linear(nn.Linear):
    """A linear layer that uses `Biased` under autocast; it shares the parameters of the layer it replaces."""

    def __init__(self, other: nn.Linear):
        super().__init__(1, 1, device="meta")
        self.in_features, self.out_features = other.in_features, other.out_features
        self.weight, self.bias = other.weight, other.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu")
        return Biased.apply(x.to(dtype), self.weight.to(dtype), self.bias.to(dtype))


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as matrix products (Vaswani et al. 2017); registered in transformers as ATTENTION.

    In the tiny recipe, the backward pass of torch's flash attention takes 9 of a step's 53 ms per layer; with plain
    products the step takes 38 ms. Rows are attended in groups of at most SCORES scores, of one row at least.
    Groups change no bit if a row's scores are a multiple of four, the elements of a draw.
    """
    refuse_position_bias(others)
    key, value = (per_head(x, query.shape[1]) for x in (key, value))
    rows, heads, length, _ = query.shape
    size = max(1, SCORES // (heads * length * key.shape[2]))
    groups = [x.split(size) for x in (query, key, value)]
    masks = [None] * len(groups[0]) if attention_mask is None else attention_mask.expand(rows, -1, -1, -1).split(size)
    found = [_attended(*group, dropout=dropout, scaling=scaling) for group in zip(*groups, masks, strict=True)]
    return torch.cat(found) if len(found) > 1 else found[0], None


def _attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    dropout: float,
    scaling: float,
) -> torch.Tensor:
    scores = (query * scaling) @ key.transpose(2, 3)
    shares = (scores if mask is None else scores + mask).softmax(-1)
    shares = drop(shares, dropout) if dropout else shares
    return (shares.to(value.dtype) @ value).transpose(1, 2).contiguous()


def per_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return keys or values, (rows, some heads, length, width), repeated so that each query head has its own.

    Source: grouped-query attention (Ainslie et al. 2023), as in Llama and Qwen.
    """
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def refuse_position_bias(others: Mapping[str, Any]) -> None:
    """Raise ValueError for an attention with a position bias, as T5's, which the fast kernels would ignore."""
    if others.get("position_bias") is not None:
        raise ValueError(
            "attention: this encoder adds a position bias, which the fast kernels do not support; give its family an "
            "`attention` that returns 'sdpa' or 'eager'"
        )


def register() -> None:
    """Register the attention in transformers."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, eager_mask)


def prepare(model: nn.Module) -> None:
    """Replace a model's dropout and linear layers by these, in place."""
    in_bf16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Dropout):
                setattr(parent, name, Dropout(module.p).train(module.training))
            elif in_bf16 and _is_plain_linear(module):
                setattr(parent, name, Linear(module))


def _is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a module is a plain nn.Linear with a bias, not a subclass."""
    return type(module) is nn.Linear and module.bias is not None


def use_sparse_table_gradient(encoder: Any, projection: nn.Linear | None) -> None:
    """Make the gradient of the token table sparse if it is tied to a projection with a dense gradient.

    The sum of the two is dense. torch would fill a second dense array of the table's size for the few tokens that
    occur. That takes 5 to 10 % of a step at 4 x 256. projection: one that every step uses. None restores the dense
    gradient, because otherwise the table's would stay sparse. Call it after creating DistributedDataParallel, which
    would expect a sparse sum.
    """
    table = encoder.get_input_embeddings()
    table.sparse = projection is not None and table.weight is projection.weight
