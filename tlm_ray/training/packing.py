"""Rows one after another in one long row, without padding; attention keeps them apart.

transformers hands what it does not know on to the attention function, which finds the rows' bounds there. Without them
BERT lets rows see each other without a word.
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tlm_ray.training import cpu
from tlm_ray.training.batches import Batch

ATTENTION = "packed"
BOUNDS, LONGEST = "cu_seq_lens_q", "max_length_q"  # transformers' names: where rows start and end; the longest's tokens


def pack(batch: Batch, *, first: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Lay a padded batch's rows out as one; return the encoder's inputs, and each cell's place among the tokens.

    first: the number of a row's first position. The last input, the longest row's tokens, is a scalar. Places are int64
    (rows * length,), of use only where a cell is a token.
    """
    inside = batch.attention.astype(bool)
    lengths = inside.sum(axis=1)
    positions = np.broadcast_to(first + np.arange(inside.shape[1]), inside.shape)
    inputs = {"input_ids": batch.tokens[inside][None], "position_ids": positions[inside][None]}
    inputs |= {} if batch.types is None else {"token_type_ids": batch.types[inside][None]}
    inputs |= {BOUNDS: np.concatenate([[0], np.cumsum(lengths)]), LONGEST: lengths.max()}
    return inputs, np.cumsum(inside) - 1


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

    Rows of like length make a batch, so they are padded for this alone: nested tensors took 6.9 ms per layer for
    entering and leaving them, on a CPU. sliding_window: tokens of this distance or more do not see each other. Rows
    that are not packed are torch's to do.
    """
    cpu.refuse_position_bias(others)
    bounds, longest = others.get(BOUNDS), others.get(LONGEST)
    if bounds is None or longest is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling)
    places = _places(bounds, longest, tokens=query.shape[2])
    q, k, v = (_padded(x[0].transpose(0, 1), places, len(bounds) - 1, longest) for x in (query, key, value))
    seen = _seen(bounds.diff(), longest, sliding_window)
    if getattr(module, "is_causal", False):
        seen = seen & torch.ones(longest, longest, dtype=torch.bool, device=seen.device).tril()
    if query.device.type == "cpu":
        hidden = torch.zeros((), dtype=query.dtype).masked_fill(~seen, torch.finfo(query.dtype).min)
        found, _ = cpu.attention(module, q, k, v, hidden, dropout=dropout, scaling=scaling)
    else:
        attend = nn.functional.scaled_dot_product_attention
        found = attend(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scaling).transpose(1, 2)
    return found.flatten(0, 1).index_select(0, places)[None], None


def _places(bounds: torch.Tensor, longest: int, *, tokens: int) -> torch.Tensor:
    """Return each token's place among those of rows padded to the longest, int64 (tokens,)."""
    rows = torch.arange(len(bounds) - 1, device=bounds.device)
    shift = rows * longest - bounds[:-1]
    return torch.arange(tokens, device=bounds.device) + shift.repeat_interleave(bounds.diff(), output_size=tokens)


def _padded(flat: torch.Tensor, places: torch.Tensor, rows: int, longest: int) -> torch.Tensor:
    """Return (tokens, heads, width) as (rows, heads, longest, width), zeros behind each row's end."""
    empty = flat.new_zeros(rows * longest, *flat.shape[1:])
    return empty.index_copy(0, places, flat).unflatten(0, (rows, longest)).transpose(1, 2)


def _seen(lengths: torch.Tensor, longest: int, window: int | None) -> torch.Tensor:
    """Return which places of padded rows are seen, bool (rows, 1, 1 or length, length)."""
    place = torch.arange(longest, device=lengths.device)
    inside = (place < lengths[:, None])[:, None, None]
    if window is None or window >= longest:
        return inside
    apart = (place[:, None] - place).abs()
    return (apart < window) & inside | (apart == 0)  # padding sees itself: a softmax needs something


def _mask(**options: Any) -> torch.Tensor | None:
    """Packed rows, which come without a mask, need none."""
    return None if options.get("attention_mask") is None else sdpa_mask(**options)


def register() -> None:
    """Make the attention known to transformers by its name."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, _mask)
