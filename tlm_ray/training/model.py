"""The joint model: one encoder with an MLM head that sees only masked positions and a task head on [CLS].

Both heads are the architecture's own in transformers, so stage one's result opens as `AutoModelForMaskedLM` and stage
two's as `AutoModelForSequenceClassification`. The paper's task head is Linear-GELU-Linear; BERT's own is
Linear-tanh-Linear (here without dropout, as in the paper), which is the price of a stock export.

Projecting to the vocabulary at masked positions alone skips 85 % of the largest matrix product of the step.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from tlm_ray.training import cpu
from tlm_ray.training.cross_entropy import ProjectedCrossEntropy
from tlm_ray.training.schedules import Geometry

MLM_HEADS = {"bert": "cls"}  # where each architecture keeps its MLM head


def bert_config(geometry: Geometry, *, vocabulary: int, pad_id: int, labels: tuple[str, ...]) -> BertConfig:
    """Return the transformers configuration of a geometry (Devlin et al. 2019)."""
    return BertConfig(
        vocab_size=vocabulary,
        pad_token_id=pad_id,
        num_hidden_layers=geometry.layers,
        hidden_size=geometry.width,
        num_attention_heads=geometry.heads,
        intermediate_size=geometry.intermediate,
        max_position_embeddings=geometry.positions,
        hidden_dropout_prob=geometry.dropout,
        attention_probs_dropout_prob=geometry.dropout,
        classifier_dropout=0.0,
        initializer_range=geometry.init_std,
        **label_names(labels),
    )


def label_names(labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration entries that give a classifier its class names."""
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: i for i, label in enumerate(labels)},
    }


class JointModel(nn.Module):
    """A classifier and, in stage one, an MLM model that share one encoder.

    forward returns two sums over this rank's rows: of the MLM cross-entropy over masked positions and of the task
    cross-entropy over rows; 0 where a batch has no such targets.
    """

    def __init__(self, classifier: PreTrainedModel, mlm: PreTrainedModel | None = None):
        super().__init__()
        self.classifier = classifier
        self.mlm = mlm

    @classmethod
    def from_scratch(cls, config: PretrainedConfig, *, seed: int) -> "JointModel":
        """Make stage one's model with random weights that depend on the configuration and the seed alone."""
        torch.manual_seed(seed)
        classifier = AutoModelForSequenceClassification.from_config(config)
        mlm = AutoModelForMaskedLM.from_config(config)
        setattr(mlm, mlm.base_model_prefix, classifier.base_model)
        mlm.tie_weights()
        mlm.get_output_embeddings().forward = lambda features: features  # the product is ProjectedCrossEntropy's
        return cls(classifier, mlm)

    @classmethod
    def from_checkpoint(cls, folder: str | Path, *, labels: tuple[str, ...], seed: int) -> "JointModel":
        """Make stage two's model: a trained encoder with a fresh task head; safetensors only, no code of others run.

        folder: stage one's model, or any encoder's by hub name or local folder.
        """
        torch.manual_seed(seed)
        config = AutoConfig.from_pretrained(
            str(folder), trust_remote_code=False, num_labels=len(labels), **label_names(labels)
        )
        options = {
            "config": config,
            "use_safetensors": True,
            "trust_remote_code": False,
            "dtype": torch.float32,
        }
        return cls(AutoModelForSequenceClassification.from_pretrained(str(folder), **options))

    def on(self, device: str) -> "JointModel":
        """Move to a device, and take the attention and the dropout that are fastest there."""
        if torch.device(device).type == "cpu":
            cpu.prepare(self)
        self.classifier.set_attn_implementation(cpu.ATTENTION if torch.device(device).type == "cpu" else "sdpa")
        return self.to(device)

    def forward(
        self,
        inputs: dict[str, torch.Tensor],
        masked: torch.Tensor | None,
        targets: torch.Tensor | None,
        labels: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if labels is None:
            hidden, task = self.classifier.base_model(**inputs).last_hidden_state, None  # type: ignore[operator]
        else:
            output = self.classifier(**inputs, output_hidden_states=masked is not None)
            hidden = output.hidden_states[-1] if masked is not None else None
            task = nn.functional.cross_entropy(output.logits.float(), labels, reduction="sum")
        mlm = None
        if masked is not None:
            assert targets is not None, "masked places come with their tokens"
            head, decoder = self.mlm_head()
            features = head(hidden.flatten(0, 1).index_select(0, masked))
            mlm = ProjectedCrossEntropy.apply(features, decoder.weight, decoder.bias, targets)
        zero = self._untouched(task is None)
        return zero if mlm is None else mlm + zero, zero if task is None else task

    def mlm_head(self) -> tuple[nn.Module, nn.Linear]:
        """The MLM head without its last product, and the layer that holds that product's weights."""
        assert self.mlm is not None, "stage two has no MLM head"
        decoder = self.mlm.get_output_embeddings()
        assert isinstance(decoder, nn.Linear)
        return getattr(self.mlm, MLM_HEADS[self.mlm.config.model_type]), decoder

    def _untouched(self, without_task: bool) -> torch.Tensor:
        """A zero that ties an idle task head into the graph, so that every rank has a gradient for every parameter."""
        zero = torch.zeros((), device=self.classifier.device)
        return zero + sum(0.0 * p.sum() for p in self.task_head()) if without_task and self.training else zero

    def task_head(self) -> list[nn.Parameter]:
        """The parameters that serve the task alone."""
        shared = {id(p) for p in self.mlm.parameters()} if self.mlm is not None else set()
        pooler = getattr(self.classifier.base_model, "pooler", None)
        alone = {id(p) for p in pooler.parameters()} if pooler is not None else set()
        return [p for p in self.classifier.parameters() if id(p) not in shared or id(p) in alone]
