"""What training on a CPU does in another way than torch: dropout, attention and the gradient of the token table."""

from typing import Any

import torch
from torch import nn
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


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as matrix products (Vaswani et al. 2017); transformers calls it by the name ATTENTION.

    The backward pass of torch's flash attention is 9 ms of a 53 ms step of the tiny recipe a layer; with plain products
    the step takes 38 ms.
    """
    scores = (query * scaling) @ key.transpose(2, 3)
    shares = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    shares = drop(shares, dropout) if dropout else shares
    return (shares.to(value.dtype) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, eager_mask)


def prepare(model: nn.Module) -> None:
    """Give a model this dropout, in place."""
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Dropout):
                setattr(parent, name, Dropout(module.p).train(module.training))


def spare_table_gradient(encoder: Any, head: nn.Linear | None) -> None:
    """Let a token table that the MLM head shares add to the head's gradient only the rows that occur.

    torch fills a second array of the table's size with zeros for them: 5 to 10 % of a step at 4 x 256. Every step must
    have an MLM loss, else the gradient stays sparse; head None undoes it. Call it after DistributedDataParallel, which
    would expect the sum to be sparse.
    """
    table = encoder.get_input_embeddings()
    table.sparse = head is not None and table.weight is head.weight
