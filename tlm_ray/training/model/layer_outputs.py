"""Hidden states of all layers and attention scores before the softmax, from one pass of an encoder."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from tlm_ray.training.model import packing


class Layers(NamedTuple):
    """What the layers of an encoder returned for a batch."""

    states: tuple[torch.Tensor, ...]
    """the embeddings, then the hidden states of each layer, in the batch's layout; the last as `Features.hidden`"""
    projected: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """queries and keys of each layer, in the batch's layout; empty if the architecture does not show them"""
    heads: int

    def scores(self, layer: int, inputs: dict[str, Any]) -> torch.Tensor:
        """Return a layer's attention scores before the softmax, (rows, heads, length, length)."""
        query, key = (
            packing.rectangle(each, inputs)[0].unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.projected[layer]
        )
        return query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])


def read_layers(encoder: Any, run: Callable[[], Any]) -> Layers:
    """Return what an encoder's layers return while `run` runs it with `output_hidden_states`."""
    with _projections(encoder) as projected:
        output = run()
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    keys = tuple((each["query"], each["key"]) for each in projected)
    return Layers(states, keys, encoder.config.num_attention_heads)


@contextmanager
def _projections(encoder: nn.Module) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Yield a list that has each layer's queries and keys after a pass, of encoders with BERT's names of modules."""
    found: list[dict[str, torch.Tensor]] = []
    hooks = []
    for module in encoder.modules():
        if isinstance(getattr(module, "query", None), nn.Linear) and isinstance(
            getattr(module, "key", None), nn.Linear
        ):
            found.append(own := dict[str, torch.Tensor]())
            for name in ("query", "key"):
                keep = _keeper(own, name)
                hooks.append(getattr(module, name).register_forward_hook(keep))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _keeper(own: dict[str, torch.Tensor], name: str) -> Any:
    def keep(module: nn.Module, given: Any, result: torch.Tensor) -> None:
        own[name] = result

    return keep
