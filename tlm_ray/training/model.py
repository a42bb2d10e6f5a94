"""The joint model: one encoder with an MLM head that sees only masked positions and a task head.

Both heads are the architecture's own in transformers, so stage one's result opens as `AutoModelForMaskedLM` and stage
two's as `AutoModelForSequenceClassification`. The paper's task head is Linear-GELU-Linear; BERT's own is
Linear-tanh-Linear (here without dropout, as in the paper), which is the price of a stock export.

Projecting to the vocabulary at masked positions alone skips 85 % of the largest matrix product of the step.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    ModernBertConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tlm_ray.training import cpu, packing
from tlm_ray.training.cross_entropy import ProjectedCrossEntropy
from tlm_ray.training.heads import Head
from tlm_ray.training.schedules import Geometry

SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "mask_token_id")


def config_from(geometry: Geometry, *, vocabulary: int, pad_id: int, labels: tuple[str, ...]) -> PretrainedConfig:
    """Return the transformers configuration of a geometry, with class names; ModernBERT's heads take means of rows."""
    size: dict[str, Any] = {
        "vocab_size": vocabulary,
        "pad_token_id": pad_id,
        "num_hidden_layers": geometry.layers,
        "hidden_size": geometry.width,
        "num_attention_heads": geometry.heads,
        "intermediate_size": geometry.intermediate,
        "max_position_embeddings": geometry.positions,
        "initializer_range": geometry.init_std,
        "classifier_dropout": 0.0,
    }
    size |= label_names(labels)
    if geometry.family == "modernbert":
        size |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
        size |= dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), geometry.dropout)
        layers = ["full_attention"] * geometry.layers  # rows are short
        return ModernBertConfig(classifier_pooling="mean", layer_types=layers, **size)
    size |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), geometry.dropout)
    return BertConfig(**size)


def config_of(source: str | Path, tokenizer: PreTrainedTokenizerBase, labels: tuple[str, ...]) -> PretrainedConfig:
    """Return the configuration of any encoder, by hub name or local folder, for another vocabulary and other labels."""
    ids = {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}
    config = AutoConfig.from_pretrained(str(source), trust_remote_code=False, **label_names(labels))
    own = {name: number for name, number in ids.items() if number is not None and hasattr(config, name)}
    for name, value in (own | {"vocab_size": len(tokenizer)}).items():
        setattr(config, name, value)
    return config


def label_names(labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration entries that give a classifier its class names; without any it is a regression."""
    if not labels:
        return {"num_labels": 1, "problem_type": "regression"}
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: i for i, label in enumerate(labels)},
    }


class JointModel(nn.Module):
    """An encoder with a task head and, in stage one, an MLM head.

    forward returns two sums over this rank's rows: of the MLM cross-entropy over masked positions and of the task's
    loss over rows, which is the cross-entropy of classes or the squared error of numbers; 0 where a batch has no such
    targets. ValueError for an architecture whose parts do not give what the whole gives.
    """

    def __init__(self, classifier: PreTrainedModel, mlm: PreTrainedModel | None = None):
        super().__init__()
        self.config = classifier.config
        self.encoder: Any = classifier.base_model
        if mlm is not None:
            setattr(mlm, mlm.base_model_prefix, self.encoder)
            mlm.tie_weights()
        rows = _sample(self.config.vocab_size)
        with torch.no_grad():
            whole = [model.eval()(**rows).logits for model in (classifier, mlm) if model is not None]
        self.task = Head(classifier)
        self.mlm = None if mlm is None else Head(mlm, without_last=True)
        self._check(whole, rows)

    @classmethod
    def from_scratch(cls, config: PretrainedConfig, *, seed: int) -> "JointModel":
        """Make stage one's model with random weights that depend on the configuration and the seed alone."""
        torch.manual_seed(seed)
        return cls(AutoModelForSequenceClassification.from_config(config), AutoModelForMaskedLM.from_config(config))

    @classmethod
    def from_checkpoint(
        cls, source: str | Path, *, labels: tuple[str, ...], seed: int, mlm: bool = False, keep_head: bool = False
    ) -> "JointModel":
        """Make a model of a trained encoder with a fresh task head; safetensors only, no code of others is run.

        source: stage one's model, or any encoder's by hub name or local folder. mlm: take its MLM head along.
        keep_head: take a classifier's own head. (ModernBERT's two heads share a layer, which comes with an MLM model.)
        """
        torch.manual_seed(seed)
        options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
        config = AutoConfig.from_pretrained(str(source), trust_remote_code=False, **label_names(labels))
        open_classifier = partial(AutoModelForSequenceClassification.from_pretrained, str(source), config=config)
        if keep_head:
            return cls(open_classifier(**options))
        classifier, read = open_classifier(ignore_mismatched_sizes=True, output_loading_info=True, **options)
        head = {n: p for n, p in classifier.named_parameters() if not n.startswith(f"{classifier.base_model_prefix}.")}
        absent = set(read["missing_keys"]) - {name for name, *_ in read["mismatched_keys"]}
        if not head.keys() & absent:  # the source is a classifier of something else
            torch.manual_seed(seed)
            fresh = dict(AutoModelForSequenceClassification.from_config(config).named_parameters())
            for name, parameter in head.items():
                parameter.data.copy_(fresh[name].data)
        return cls(classifier, AutoModelForMaskedLM.from_pretrained(str(source), **options) if mlm else None)

    def on(self, device: str, *, packed: bool = False) -> "JointModel":
        """Move to a device, and take the attention and the dropout that are fastest there."""
        on_cpu = torch.device(device).type == "cpu"
        if on_cpu:
            cpu.prepare(self)
        attention = packing.ATTENTION if packed else cpu.ATTENTION if on_cpu else "sdpa"
        if self.encoder._can_set_attn_implementation():
            self.encoder.set_attn_implementation(attention)
        return self.to(device)

    def forward(
        self,
        inputs: dict[str, torch.Tensor],
        masked: torch.Tensor | None,
        targets: torch.Tensor | None,
        labels: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.encode(inputs)
        zero = torch.zeros((), device=hidden.device)
        mlm = zero if masked is None or targets is None else self._mlm_loss(hidden, masked, targets)
        if labels is None:
            return mlm + self._untouched(), zero
        return mlm, self._task_loss(self.task(*packing.rectangle(hidden, inputs)), labels)

    def encode(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the hidden states of a batch, laid out as its tokens are: (rows, length, width) or (1, tokens, width).

        inputs: input_ids with attention_mask, or packed (`tlm_ray.training.packing`); token_type_ids, which are left
        out where the architecture has none.
        """
        if getattr(self.config, "type_vocab_size", 1) < 2:
            inputs = {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}
        return self.encoder(**inputs).last_hidden_state

    def scores(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the task's logits, float32 (rows, classes), or the numbers of a regression, (rows, 1)."""
        return self.task(*packing.rectangle(self.encode(inputs), inputs)).float()

    def _mlm_loss(self, hidden: torch.Tensor, masked: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert self.mlm is not None, "stage two has no MLM head"
        features = self.mlm(hidden.flatten(0, 1).index_select(0, masked)[None])[0]
        return ProjectedCrossEntropy.apply(features, self.mlm.last.weight, self.mlm.last.bias, targets)

    def _task_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.config.problem_type == "regression":
            return nn.functional.mse_loss(logits.float().squeeze(-1), labels.float(), reduction="sum")
        return nn.functional.cross_entropy(logits.float(), labels, reduction="sum")

    def _untouched(self) -> torch.Tensor | float:
        """A zero that ties an idle task head into the graph, so that every rank has a gradient for every parameter."""
        return sum((0.0 * p.sum() for p in self.task.parameters()), 0.0) if self.training else 0.0

    @torch.no_grad()
    def _check(self, whole: list[torch.Tensor], rows: dict[str, torch.Tensor]) -> None:
        try:
            hidden = self.encode(rows)
            parts = [self.task(hidden, rows["attention_mask"])]
            if self.mlm is not None:
                parts.append(nn.functional.linear(self.mlm(hidden), self.mlm.last.weight, self.mlm.last.bias))
            torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-4)
        except (AssertionError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"architecture {self.config.model_type!r}: its heads need more of the encoder than hidden states; "
                "take another, such as bert, roberta, albert, modernbert, distilbert or electra"
            ) from error


def _sample(vocabulary: int) -> dict[str, torch.Tensor]:
    """Two short rows of any tokens."""
    tokens = torch.arange(8).view(2, 4) % vocabulary
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
