"""The joint model: one encoder with a head per objective.

Heads are transformers' own for the architecture. So stage one's result opens as `AutoModelForMaskedLM`, and stage two's
as `AutoModelForSequenceClassification`. Of an encoder-decoder both open as `AutoModelForSeq2SeqLM`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from tlm_ray.training.encoders.configs import reads_types
from tlm_ray.training.encoders.families import FAMILIES, Family, fastest_attention
from tlm_ray.training.encoders.heads import Head, sample_rows
from tlm_ray.training.encoders.starts import Start
from tlm_ray.training.encoders.weights import Weights
from tlm_ray.training.kernels import cpu, cuda
from tlm_ray.training.model import packing
from tlm_ray.training.model.architectures import refusal, refuse_by_type
from tlm_ray.training.model.layer_outputs import Layers, read_layers
from tlm_ray.training.model.layouts import check_layouts
from tlm_ray.training.objectives import Labels, Objective, Prediction

# Errors that a model's code raises if an expected input is missing
UNFIT = (AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError)


class Features:
    """The encoder's output for a batch, computed on first use in one pass; with_layers: `layers` are kept."""

    def __init__(self, model: "JointModel", inputs: dict[str, Any], *, with_layers: bool = False):
        self.model, self.inputs, self.with_layers = model, inputs, with_layers

    def read(self, tokens: torch.Tensor) -> None:
        """Replace the tokens that the encoder reads, in the batch's layout; RuntimeError once it has read them."""
        if vars(self).keys() & {"hidden", "layers"}:
            raise RuntimeError("features: the encoder has read its tokens; an objective that replaces them comes first")
        self.inputs = self.inputs | {"input_ids": tokens}

    @cached_property
    def hidden(self) -> torch.Tensor:
        """The last hidden states in the batch's layout: (rows, length, width), or packed (1, tokens, width)."""
        return self.layers.states[-1] if self.with_layers else self.model.encode(self.inputs)

    @cached_property
    def layers(self) -> Layers:
        """The hidden states of all layers, and their attention scores."""
        model = self.model
        return read_layers(model.encoder, lambda: model.output(self.inputs, output_hidden_states=True))

    @cached_property
    def teacher(self) -> "Features":
        """The teacher's features of the same batch, without gradients."""
        if self.model.teacher is None:
            raise ValueError("features: this model has no teacher; give Recipe.teacher")
        teacher, inputs = self.model.teacher, self.inputs
        shift = packing.first_position(teacher.encoder) - packing.first_position(self.model.encoder)
        if shift and "position_ids" in inputs:  # of packed rows, counted as the student does
            inputs = inputs | {"position_ids": inputs["position_ids"] + shift}
        return Features(teacher, inputs, with_layers=self.with_layers)

    @property
    def tokens(self) -> torch.Tensor:
        """The hidden states per token, (tokens, width); `Prediction.places` are indices into them."""
        return self.hidden.flatten(0, 1)

    @property
    def rectangle(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The hidden states as (rows, length, width) and the mask of real tokens, from either layout."""
        return packing.rectangle(self.hidden, self.inputs)

    @property
    def ids(self) -> torch.Tensor:
        """The tokens that the encoder reads as (rows, length), from either layout."""
        return packing.rectangle(self.inputs["input_ids"][..., None], self.inputs)[0][..., 0]


class JointModel(nn.Module):
    """An encoder with the heads of its objectives.

    forward returns the sum of losses over this worker's rows, by name of each objective with predictions in the batch.
    teacher: a trained model, which is frozen; it is no part of this model's parameters. ValueError for an architecture
    whose separated parts compute other results than the whole model.
    """

    def __init__(
        self,
        weights: Weights,
        objectives: Sequence[Objective],
        *,
        family: Family | None = None,
        teacher: "JointModel | None" = None,
    ):
        super().__init__()
        self.beside = (teacher.eval().requires_grad_(False),) if teacher else ()  # in a tuple: not a submodule
        self.config, self.family = weights.config, family
        self.objectives = {objective.name: objective for objective in objectives}
        refuse_by_type(self.config, objectives)
        encoder: Any = None
        heads: dict[str, nn.Module] = {}
        for name, objective in self.objectives.items():
            heads[name] = head = objective.head(weights)
            if isinstance(head, Head):
                encoder = self._shared(head, encoder)
        if encoder is None:
            raise ValueError(f"objectives {', '.join(self.objectives)}: one at least must take its head from `weights`")
        self.encoder: Any = encoder
        self.heads: Any = nn.ModuleDict(heads)
        self._check()

    @classmethod
    def of(
        cls, start: Start, objectives: Sequence[Objective], *, teacher: "JointModel | None" = None, **options: Any
    ) -> "JointModel":
        """Return the initial model of a training with a head per objective; options: those of `Start.weights`."""
        with start.weights(**options) as weights:
            return cls(weights, objectives, family=start.family, teacher=teacher)

    @property
    def teacher(self) -> "JointModel | None":
        """The frozen model that objectives learn from; None if there is none."""
        return self.beside[0] if self.beside else None

    @torch.no_grad()
    def begin_with(self, embeddings: np.ndarray | None, bias: np.ndarray) -> None:
        """Set the token embeddings, (vocabulary, width), except for rows of zeros, and the output bias of new heads.

        Rows beyond the vocabulary, which some encoders have, become as unlikely as the rarest token. Source:
        `tlm_ray.training.tokens.counts`.
        """
        if embeddings is not None:
            known = torch.from_numpy(embeddings.any(axis=1))
            table = self.encoder.get_input_embeddings().weight[: len(known)]
            table[known] = torch.from_numpy(embeddings)[known]
        for name, objective in self.objectives.items():
            projection = objective.projection(self.heads[name])
            is_new = getattr(self.heads[name], "is_new", True)
            if is_new and projection is not None and projection.bias is not None:
                projection.bias.fill_(float(bias.min()))
                projection.bias[: len(bias)] = torch.from_numpy(bias)

    def scale_to(self, labels: np.ndarray | None, objectives: Sequence[Objective]) -> None:
        """Let the regressions among some objectives learn in units of these labels' standard deviation."""
        for objective in objectives:
            head = self.heads[objective.name]
            if isinstance(objective, Labels) and isinstance(head, Head) and labels is not None:
                head.scale_to(labels)

    def on(self, device: str, *, packed: bool = False) -> "JointModel":
        """Move to a device, with the fastest attention and dropout for it.

        ValueError names an architecture whose result for a row depends on padding or on other packed rows.
        """
        on_cpu = torch.device(device).type == "cpu"
        if on_cpu:
            cpu.prepare(self)
        else:
            cuda.prepare()
        if self.encoder._can_set_attn_implementation():
            cpu.register()
            packing.register()
            family = self.family or FAMILIES.get(self.config.model_type)
            attention = family.attention if family else fastest_attention
            for model in (self.encoder, *self._own_encoders()):
                model.set_attn_implementation(attention(on_cpu=on_cpu, packed=packed))
        self.to(device)
        for teacher in self.beside:
            teacher.on(device, packed=packed)
        check_layouts(self, device, packed=packed)
        return self

    def forward(self, inputs: dict[str, Any], predictions: Mapping[str, Prediction]) -> dict[str, torch.Tensor]:
        with_layers = any(self.objectives[name].reads_layers for name in predictions)
        features = Features(self, inputs, with_layers=with_layers)
        sums = {
            name: self.objectives[name].loss(self.heads[name], features, prediction)
            for name, prediction in predictions.items()
        }
        first = next(iter(sums))
        return sums | {first: sums[first] + self._idle_heads(sums)}

    def encode(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return a batch's hidden states in its layout: (rows, length, width) or (1, tokens, width).

        inputs: input_ids with attention_mask, or packed (`tlm_ray.training.model.packing`). token_type_ids are ignored
        if the architecture has none.
        """
        return self.output(inputs).last_hidden_state

    def output(self, inputs: dict[str, Any], **options: Any) -> Any:
        """Return transformers' own output of the encoder."""
        if not reads_types(self.config):
            inputs = {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}
        return self.encoder(**inputs, **options)

    def scores(self, inputs: dict[str, Any], objective: str = "labels") -> torch.Tensor:
        """Return a classifier's logits, float32 (rows, classes), or a regression's numbers, (rows, 1)."""
        labels: Any = self.objectives[objective]
        return labels.logits(self.heads[objective], Features(self, inputs))

    def written(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the class whose name a decoder writes, float32 (rows, 1), or -1 where it writes anything else."""
        return self.heads["labels"].written(*Features(self, inputs).rectangle)[:, None].float()

    def export(self, objective: Objective, folder: Path, *, precision: str) -> None:
        """Write the model with an objective's head; its configuration records the training precision."""
        for head in self.heads.values():
            if isinstance(head, Head):
                head.model.config.trained_precision = precision
        objective.export(self, folder)

    def _idle_heads(self, sums: Mapping[str, Any]) -> torch.Tensor | float:
        """Return a zero that depends on all idle heads, so that every parameter has a gradient on every worker."""
        idle = (head for name, head in self.heads.items() if name not in sums)
        return sum((0.0 * p.sum() for head in idle for p in head.parameters()), 0.0) if self.training else 0.0

    def _own_encoders(self) -> list[PreTrainedModel]:
        """Return the encoders that heads have beside the shared one."""
        heads = [head for head in self.heads.values() if not isinstance(head, Head)]
        return [model for head in heads for model in head.children() if isinstance(model, PreTrainedModel)]

    def _shared(self, head: Head, encoder: Any) -> Any:
        try:
            return head.share(encoder)
        except UNFIT as error:
            raise refusal(self.config, "its heads need more of the encoder than hidden states") from error

    @torch.no_grad()
    def _check(self) -> None:
        """Compare the logits of the separated parts with those of each whole model."""
        rows = sample_rows(self.config)
        try:
            hidden = self.encode(rows)
        except UNFIT as error:
            raise refusal(self.config, "its encoder does not run without its pooler") from error
        if hidden.shape[:2] != rows["input_ids"].shape:
            raise refusal(self.config, "its encoder does not return one hidden state per token")
        for name, head in self.heads.items():
            if isinstance(head, Head):
                self._check_head(name, head, hidden, rows["attention_mask"])

    def _check_head(self, name: str, head: Head, hidden: torch.Tensor, attention: torch.Tensor) -> None:
        try:
            torch.testing.assert_close(head.logits(hidden, attention), head.expected, atol=1e-4, rtol=1e-4)
        except UNFIT as error:
            why = "its heads need more of the encoder than hidden states"
            if head.last is not None:
                why = f"its head for {name!r} is more than a transform and one product with the vocabulary"
            raise refusal(self.config, why) from error
