"""Separate the heads of transformers' models from their encoders: hidden states in, logits out.

So one encoder serves several heads, on padded or packed rows, and a head computes only the positions it needs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions as Outputs

from tlm_ray.training.encoders.scaled import Scaled, scale_to, with_scaled


class GivenStates(nn.Module):
    """Replaces a model's encoder: returns the given hidden states, pooled as the encoder does."""

    def __init__(self, pooler: nn.Module | None):
        super().__init__()
        self.pooler = pooler

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> Outputs:
        pooled = None if self.pooler is None else self._pool(inputs_embeds)
        return Outputs(last_hidden_state=inputs_embeds, pooler_output=pooled)

    def _pool(self, hidden: torch.Tensor) -> torch.Tensor:
        if isinstance(self.pooler, nn.Linear):  # ALBERT's pooler has separate parts
            return self.pooler(hidden[:, 0]).tanh()
        return self.pooler(hidden)  # type: ignore[misc]


class Unprojected(nn.Linear):
    """Replaces a model's last linear layer: holds the same parameters and returns its input."""

    def __init__(self, last: nn.Linear):
        super().__init__(1, 1, device="meta")
        self.in_features, self.out_features = last.in_features, last.out_features
        self.weight, self.bias = last.weight, last.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Head(nn.Module):
    """A transformers model without its encoder, once that is shared (`share`); the encoder's pooler stays here.

    without_last: forward returns the input of the last linear layer, `last`, which the caller applies. is_new: its
    weights are random.
    """

    def __init__(self, model: PreTrainedModel, *, without_last: bool = False, is_new: bool = True):
        super().__init__()
        self.model, self.is_new = model, is_new
        self.is_regression = not without_last and model.config.problem_type == "regression"
        self.last: Any = model.get_output_embeddings() if without_last else None
        self.expected: torch.Tensor | None = None  # the whole model's logits of `sample_rows`

    def share(self, encoder: Any = None) -> Any:
        """Detach the encoder and return it; `encoder` replaces the model's own first (None: keep it)."""
        if encoder is not None:
            encoder.pooler = getattr(self.model.base_model, "pooler", None)
            self._replace(encoder)
            self.model.tie_weights()
        encoder = self.model.base_model
        with torch.no_grad():
            self.expected = self.model.eval()(**sample_rows(self.model.config)).logits
        if self.last is not None:
            self.last = _replaced(self.model, self.last, Unprojected(self.last))
        self._replace(GivenStates(getattr(encoder, "pooler", None)))
        encoder.pooler = None
        if self.is_regression:
            with_scaled(self)
        return encoder

    @property
    def scaled(self) -> list[Scaled]:
        """The last layers of a regression, whose outputs are added up; none of other heads."""
        return [module for module in self.modules() if isinstance(module, Scaled)]

    def scale_to(self, labels: np.ndarray) -> None:
        """Let a regression learn in units of these labels' standard deviation; other heads stay as they are."""
        if self.scaled:
            scale_to(self.scaled, labels)

    def forward(self, hidden: torch.Tensor, attention: torch.Tensor | None = None) -> torch.Tensor:
        """Map hidden states, (rows, length, width), to logits, (rows, classes) or (rows, length, vocabulary)."""
        if attention is not None and hasattr(self.model, "score"):  # a decoder's classifier uses the last token
            last = attention.sum(1) - 1
            hidden, attention = hidden[torch.arange(len(last), device=last.device), last][:, None], None
        return self.model(inputs_embeds=hidden, attention_mask=attention).logits

    def logits(self, hidden: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        """Map hidden states to the whole model's output, the last linear layer included."""
        found = self(hidden, attention)
        return found if self.last is None else nn.functional.linear(found, self.last.weight, self.last.bias)

    @contextmanager
    def whole(self, encoder: Any) -> Iterator[PreTrainedModel]:
        """Yield the model with its encoder and pooler put back."""
        given: Any = self.model.base_model
        self._replace(encoder)
        encoder.pooler = given.pooler
        try:
            yield self.model
        finally:
            encoder.pooler = None
            self._replace(given)

    def export(self, encoder: Any, folder: Path) -> None:
        """Write the whole model; transformers can open it."""
        with self.whole(encoder) as whole:
            whole.save_pretrained(folder)

    def _replace(self, encoder: nn.Module) -> None:
        setattr(self.model, self.model.base_model_prefix, encoder)


def sample_rows(config: PretrainedConfig) -> dict[str, torch.Tensor]:
    """Return two short rows of arbitrary tokens, one padded, to compare a model's parts with the whole."""
    padding = config.pad_token_id or 0
    others = [token for token in range(min(9, config.vocab_size)) if token != padding]
    tokens = torch.tensor(others)[torch.arange(8) % len(others)].view(2, 4)
    attention = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    return {"input_ids": tokens.where(attention == 1, padding), "attention_mask": attention}


def _replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Replace a module by another, wherever it occurs in the model."""
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if module is old:
                setattr(parent, name, new)
    return new
