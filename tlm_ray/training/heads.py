"""The heads of transformers' models, apart from their encoders: hidden states in, logits out.

So one encoder serves two heads, on rows laid out in any way, and a head sees no more positions than it needs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling


class Given(nn.Module):
    """Stands where a model had its encoder: hands on the hidden states that it is given, pooled as the encoder does."""

    def __init__(self, pooler: nn.Module | None):
        super().__init__()
        self.pooler = pooler

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutputWithPooling:
        pooled = None if self.pooler is None else self._pool(inputs_embeds)
        return BaseModelOutputWithPooling(last_hidden_state=inputs_embeds, pooler_output=pooled)

    def _pool(self, hidden: torch.Tensor) -> torch.Tensor:
        if isinstance(self.pooler, nn.Linear):  # ALBERT keeps its pooler's parts apart
            return self.pooler(hidden[:, 0]).tanh()
        return self.pooler(hidden)  # type: ignore[misc]


class Head(nn.Module):
    """A model without its encoder, which is taken out of it; the encoder's pooler stays here.

    without_last: leave the last product, which `last` holds, to the caller: forward returns what it is a product with.
    """

    def __init__(self, model: PreTrainedModel, *, without_last: bool = False):
        super().__init__()
        encoder: Any = model.base_model
        self.last: Any = model.get_output_embeddings() if without_last else None
        if self.last is not None:
            self.last.forward = lambda features: features
        self._replace(model, Given(getattr(encoder, "pooler", None)))
        encoder.pooler = None
        self.model = model

    def forward(self, hidden: torch.Tensor, attention: torch.Tensor | None = None) -> torch.Tensor:
        """Map hidden states, (rows, length, width), to logits, (rows, classes) or (rows, length, vocabulary)."""
        return self.model(inputs_embeds=hidden, attention_mask=attention).logits

    @contextmanager
    def whole(self, encoder: Any) -> Iterator[PreTrainedModel]:
        """Lend the model with its encoder and pooler in their places, to be saved."""
        given: Any = self.model.base_model
        self._replace(self.model, encoder)
        encoder.pooler = given.pooler
        try:
            yield self.model
        finally:
            encoder.pooler = None
            self._replace(self.model, given)

    @staticmethod
    def _replace(model: PreTrainedModel, encoder: nn.Module) -> None:
        setattr(model, model.base_model_prefix, encoder)
