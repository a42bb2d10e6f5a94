"""What training on a CPU does in another way than torch: dropout, linear maps, attention, the tokens' gradient."""

from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

ATTENTION = "plain_cpu"


def drop(x: torch.Tensor, p: float) -> torch.Tensor:
    """Return x with each element zero by probability p, in steps of 2^-16, and the others divided by 1 - p.

    Each number of 64 bits of torch's generator serves four elements: 1 ns an element, against the 6 ns of torch.
    """
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= round(p * 2**16) - 2**15
    return x * kept.to(x.dtype).mul_(1 / (1 - p))


class Dropout(nn.Module):
    """Dropout by `drop`."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return drop(x, self.p) if self.training and self.p else x


class Biased(torch.autograd.Function):
    """`apply(x, weight, bias)` returns x @ weight.T + bias, with the bits of torch's own.

    x: (..., inputs). torch copies the bias into every row of the result before it adds the product: 40 ms against 15
    for 4,096 rows from 768 to 3,072. oneDNN, which makes the product for both, adds it on the way.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        return (rows @ weight).view_as(x), rows.T @ x.reshape(-1, x.shape[-1]), rows.sum(0)


class Linear(nn.Linear):
    """A linear map that takes `Biased` under autocast; it shares the parameters of the one that it stands for."""

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
    """Attention as matrix products (Vaswani et al. 2017); transformers calls it by the name ATTENTION.

    The backward pass of torch's flash attention is 9 ms of a 53 ms step of the tiny recipe a layer; with plain products
    the step takes 38 ms.
    """
    refuse_position_bias(others)
    scores = (query * scaling) @ key.transpose(2, 3)
    shares = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    shares = drop(shares, dropout) if dropout else shares
    return (shares.to(value.dtype) @ value).transpose(1, 2).contiguous(), None


def refuse_position_bias(others: Mapping[str, Any]) -> None:
    """ValueError for an attention that adds to its scores what the fast ones would leave out, as T5's does."""
    if others.get("position_bias") is not None:
        raise ValueError(
            "attention: this encoder adds a bias by position, which the fast attentions have not; give its family an "
            "`attention` that returns 'sdpa' or 'eager'"
        )


def register() -> None:
    """Make the attention known to transformers by its name."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, eager_mask)


def prepare(model: nn.Module) -> None:
    """Give a model this dropout and these linear maps, in place."""
    in_bf16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Dropout):
                setattr(parent, name, Dropout(module.p).train(module.training))
            elif in_bf16 and _is_plain_linear(module):
                setattr(parent, name, Linear(module))


def _is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module does what nn.Linear does, with a bias; a subclass does something else."""
    return type(module) is nn.Linear and module.bias is not None


def use_sparse_table_gradient(encoder: Any, projection: nn.Linear | None) -> None:
    """Make the gradient of the token table sparse where it is tied to a projection whose gradient is dense.

    The sum of the two is dense. torch would fill a second dense array of the table's size for the few rows that occur:
    5 to 10 % of a step at 4 x 256. projection: one that each step multiplies with; without one the gradient of the
    table alone would stay sparse, so None restores the dense one. Call it after DistributedDataParallel, which would
    expect the sum to be sparse.
    """
    table = encoder.get_input_embeddings()
    table.sparse = projection is not None and table.weight is projection.weight
