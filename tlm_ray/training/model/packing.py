"""Pack rows into one long row without padding; the attention separates them.

transformers passes unknown arguments on to the attention function, which reads the row boundaries from them. Without
the boundaries, BERT's rows would attend to each other, without any error.
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tlm_ray.training.kernels import cpu
from tlm_ray.training.sampler.batches import Batch

ATTENTION = "packed"
BOUNDS, LONGEST = "cu_seq_lens_q", "max_length_q"  # transformers' names: row boundaries, and length of the longest row


def pack(batch: Batch, *, first: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Concatenate a padded batch's rows; return the encoder's inputs, and each cell's index among the tokens.

    first: number of a row's first position. LONGEST, the length of the longest row, is a scalar. Indices are int64
    (rows * length,) and only valid for cells with a token.
    """
    inside = batch.attention.astype(bool)
    lengths = inside.sum(axis=1)
    positions = np.broadcast_to(first + np.arange(inside.shape[1]), inside.shape)
    inputs = {"input_ids": batch.tokens[inside][None], "position_ids": positions[inside][None]}
    inputs |= {} if batch.types is None else {"token_type_ids": batch.types[inside][None]}
    inputs |= {BOUNDS: np.concatenate([[0], np.cumsum(lengths)]), LONGEST: lengths.max()}
    return inputs, np.cumsum(inside) - 1


def first_position(encoder: PreTrainedModel) -> int:
    """Return the number of a row's first position; in RoBERTa and its variants it follows the padding's."""
    embeddings: Any = getattr(encoder, "embeddings", None)
    return 1 + embeddings.padding_idx if hasattr(embeddings, "create_position_ids_from_input_ids") else 0


def rectangle(hidden: torch.Tensor, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return hidden states as (rows, length, width) and the mask of real tokens, from either layout."""
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
    """Compute attention within rows; query, key and value are (1, heads, tokens, width). Registered as ATTENTION.

    Batched rows have similar lengths, so they are padded here. Nested tensors took 6.9 ms per layer for the
    conversions, on a CPU. sliding_window: tokens at this distance or more do not attend to each other. Rows that are
    not packed use torch's attention.
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
        k, v = (cpu.per_head(x, q.shape[1]) for x in (k, v))
        found = attend(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scaling).transpose(1, 2)
    return found.flatten(0, 1).index_select(0, places)[None], None


def _places(bounds: torch.Tensor, longest: int, *, tokens: int) -> torch.Tensor:
    """Return each token's index among rows padded to the longest, int64 (tokens,)."""
    rows = torch.arange(len(bounds) - 1, device=bounds.device)
    shift = rows * longest - bounds[:-1]
    return torch.arange(tokens, device=bounds.device) + shift.repeat_interleave(bounds.diff(), output_size=tokens)


def _padded(flat: torch.Tensor, places: torch.Tensor, rows: int, longest: int) -> torch.Tensor:
    """Return (tokens, heads, width) as (rows, heads, longest, width), padded with zeros."""
    empty = flat.new_zeros(rows * longest, *flat.shape[1:])
    return empty.index_copy(0, places, flat).unflatten(0, (rows, longest)).transpose(1, 2)


def _seen(lengths: torch.Tensor, longest: int, window: int | None) -> torch.Tensor:
    """Return the attention mask of padded rows, bool (rows, 1, 1 or length, length)."""
    place = torch.arange(longest, device=lengths.device)
    inside = (place < lengths[:, None])[:, None, None]
    if window is None or window >= longest:
        return inside
    apart = (place[:, None] - place).abs()
    return (apart < window) & inside | (apart == 0)  # padding attends to itself, because a softmax needs an entry


def _mask(**options: Any) -> torch.Tensor | None:
    """Return no mask for packed rows, else torch's."""
    return None if options.get("attention_mask") is None else sdpa_mask(**options)


def register() -> None:
    """Register the attention in transformers."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, _mask)
