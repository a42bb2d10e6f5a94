"""Rows one after another in one long row, without padding; attention keeps them apart.

transformers hands what it does not know on to the attention function, which finds the rows' bounds there. Without them
BERT lets rows see each other without a word.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tlm_ray.training.batches import Batch

ATTENTION = "packed"
BOUNDS, LONGEST = "cu_seq_lens_q", "max_length_q"  # transformers' names: where rows start and end; the longest's tokens


def pack(batch: Batch, *, first: int) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Lay a padded batch's rows out as one; return the encoder's inputs, and where the masked tokens are among them.

    first: the number of a row's first position. The last input, the longest row's tokens, is a scalar.
    """
    inside = batch.attention.astype(bool)
    lengths = inside.sum(axis=1)
    positions = np.broadcast_to(first + np.arange(inside.shape[1]), inside.shape)
    inputs = {"input_ids": batch.tokens[inside][None], "position_ids": positions[inside][None]}
    inputs |= {} if batch.types is None else {"token_type_ids": batch.types[inside][None]}
    inputs |= {BOUNDS: np.concatenate([[0], np.cumsum(lengths)]), LONGEST: lengths.max()}
    masked = None if batch.masked is None else (np.cumsum(inside) - 1)[batch.masked]
    return inputs, masked


def first_position(encoder: PreTrainedModel) -> int:
    """Return the number of a row's first position: RoBERTa and its kin begin after the padding's."""
    embeddings: Any = getattr(encoder, "embeddings", None)
    return 1 + embeddings.padding_idx if hasattr(embeddings, "create_position_ids_from_input_ids") else 0


def rectangle(hidden: torch.Tensor, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return hidden states as (rows, length, width), and which are tokens, from either layout."""
    if BOUNDS not in inputs:
        return hidden, inputs.get("attention_mask")
    starts, ends = inputs[BOUNDS][:-1, None], inputs[BOUNDS][1:, None]
    places = starts + torch.arange(inputs[LONGEST], device=hidden.device)
    inside = places < ends
    return hidden[0][torch.where(inside, places, starts)] * inside[..., None], inside.long()


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within rows; transformers calls it by the name ATTENTION. (1, heads, tokens, width) each.

    sliding_window: tokens of this distance or more do not see each other. Rows that are not packed are torch's to do.
    """
    bounds, longest = others.get(BOUNDS), others.get(LONGEST)
    if bounds is None or longest is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False
        )
    rows = [_rows(x, bounds, longest) for x in (query, key, value)]
    attend: Any = partial(nn.functional.scaled_dot_product_attention, dropout_p=dropout, scale=scaling)
    if sliding_window is None or sliding_window >= longest:
        return attend(*rows).transpose(1, 2).values()[None], None
    inside, seen = _windows(bounds.diff(), longest, sliding_window)
    padded = [x.transpose(1, 2).to_padded_tensor(0.0).transpose(1, 2) for x in rows]
    return attend(*padded, attn_mask=seen).transpose(1, 2)[inside][None], None


def _windows(lengths: torch.Tensor, longest: int, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which places of padded rows are tokens, (rows, length), and which they see, (rows, 1, length, length)."""
    place = torch.arange(longest, device=lengths.device)
    apart, inside = (place[:, None] - place).abs(), place < lengths[:, None]
    seen = (apart < window) & inside[:, None, None] | (apart == 0)  # padding sees itself: a softmax needs something
    return inside, seen


def _rows(x: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
    flat = x[0].transpose(0, 1).contiguous()
    return torch.nested.nested_tensor_from_jagged(flat, bounds, min_seqlen=1, max_seqlen=longest).transpose(1, 2)


def _mask(**options: Any) -> torch.Tensor | None:
    """Packed rows, which come without a mask, need none."""
    return None if options.get("attention_mask") is None else sdpa_mask(**options)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, _mask)
