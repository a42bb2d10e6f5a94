"""Provide a model's initial weights: random ones for a configuration, or those of a trained encoder.

Each objective requests the transformers model with its head. All share the encoder of the first request. Random weights
depend only on the configuration and the seed.
"""

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tlm_ray.storage.opening import open_pretrained, open_settings, open_trained, open_trained_classifier
from tlm_ray.training.encoders.decoders import Decoder, with_label_tokens
from tlm_ray.training.encoders.heads import Head
from tlm_ray.training.encoders.marked_head import MarkedConfig, MarkedHead, with_marks


class Weights(Protocol):
    """The protocol of initial weights, from which objectives create their heads."""

    config: PretrainedConfig

    def classifier_head(self, labels: tuple[str, ...] | None = None) -> Head:
        """Return the architecture's classifier; labels: classes to use instead of the task's."""
        ...

    def marked_head(self, marks: Sequence[str]) -> Head:
        """Return the architecture's classifier, which also reads the states at two marked spans."""
        ...

    def head(self, model: Any) -> Head:
        """Return a head of one of transformers' classes, without its last linear layer, which the caller applies.

        model: the class, such as AutoModelForMaskedLM.
        """
        ...

    @property
    def decoder(self) -> Decoder:
        """The decoder of an encoder-decoder, one for all objectives that write."""
        ...


class RandomWeights:
    """Random weights from transformers' initialisation; tokenizer: of the labels' names, for an encoder-decoder."""

    def __init__(self, config: PretrainedConfig, *, seed: int, tokenizer: PreTrainedTokenizerBase | None = None):
        self.config, self.tokenizer = config, tokenizer
        torch.manual_seed(seed)

    def classifier_head(self, labels: tuple[str, ...] | None = None) -> Head:
        """Return a fresh classifier."""
        return Head(AutoModelForSequenceClassification.from_config(_labelled(self.config, labels)))

    def marked_head(self, marks: Sequence[str]) -> Head:
        """Return a fresh classifier that reads marks."""
        with_marks(self.config, self.tokenizer, marks)
        return MarkedHead(AutoModelForSequenceClassification.from_config(self.config))

    def head(self, model: Any) -> Head:
        """Return a fresh head of one of transformers' classes."""
        return Head(model.from_config(self.config), without_last=True)

    @cached_property
    def decoder(self) -> Decoder:
        """A fresh decoder, one for all objectives."""
        return Decoder(AutoModelForSeq2SeqLM.from_config(with_label_tokens(self.config, self.tokenizer)))


class TrainedWeights:
    """The weights of a trained encoder with a fresh task head; safetensors only, no remote code.

    source: stage one's model, or any encoder by hub name or local folder. labels: the task's. keep_head: keep a
    classifier's own head; ValueError if it has none. name: replaces the source in that error. (ModernBERT's two heads
    share a layer, which a masked language model provides.) tokenizer: the source gets new embeddings for tokens of it
    that it has not, such as GPT-2 for padding.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        labels: tuple[str, ...],
        seed: int,
        keep_head: bool = False,
        name: str = "",
        tokenizer: PreTrainedTokenizerBase | None = None,
    ):
        torch.manual_seed(seed)
        self.source, self.seed, self.keep_head, self.name = str(source), seed, keep_head, name
        self.config = open_settings(AutoConfig, self.source, **label_names(labels))
        if isinstance(self.config, MarkedConfig):
            if not keep_head:
                raise ValueError(
                    f"start {name or source}: is a classifier of marked spans, which no training goes on with; give "
                    "the encoder that it was trained from"
                )
            self.config = self.config.of_plain
        self.tokenizer = tokenizer
        self._pad(self.config)

    def classifier_head(self, labels: tuple[str, ...] | None = None) -> Head:
        """Return the source's classifier, with a fresh head unless keep_head is set."""
        config = _labelled(self.config, labels)
        if self.keep_head:
            return Head(open_trained_classifier(self.source, name=self.name, config=config, dtype=torch.float32))
        options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True}
        classifier, loading = self._open(AutoModelForSequenceClassification, **options)
        prefix = f"{classifier.base_model_prefix}."
        head = {name: p for name, p in classifier.named_parameters() if not name.startswith(prefix)}
        if self._came_with_a_head(head, loading):
            self._draw_again(head, config)
        return Head(classifier)

    def marked_head(self, marks: Sequence[str]) -> Head:
        """Return the source's classifier that reads marks, with a fresh head unless keep_head is set."""
        if self.keep_head:
            model = open_trained_classifier(self.source, name=self.name, dtype=torch.float32)
            return MarkedHead(model.plain, model.marked)
        with_marks(self.config, self.tokenizer, marks)
        return MarkedHead(self.classifier_head().model)

    def head(self, model: Any) -> Head:
        """Return the source's head of one of transformers' classes, or a random one if it has none."""
        opened, loading = self._open(model, output_loading_info=True)
        return Head(opened, without_last=True, is_new=bool(loading["missing_keys"]))

    @cached_property
    def decoder(self) -> Decoder:
        """The source's decoder, one for all objectives; ValueError if keep_head is set and it knows no labels."""
        config = with_label_tokens(self.config, self.tokenizer)
        if not self.keep_head:
            return Decoder(self._open(AutoModelForSeq2SeqLM, config=config))
        texts, classes = len(getattr(config, "label_tokens", [])), config.num_labels
        if texts != classes:
            raise ValueError(
                f"model {self.name or self.source!r}: its config.json has {texts} label_tokens for {classes} labels; "
                "train it again with labels=TextLabels()"
            )
        return Decoder(open_trained(AutoModelForSeq2SeqLM, self.source, name=self.name, config=config))

    def _open(self, model: Any, **options: Any) -> Any:
        found = open_pretrained(model, self.source, **options)
        opened: PreTrainedModel = found[0] if isinstance(found, tuple) else found
        if self.tokenizer is not None and len(self.tokenizer) > opened.config.vocab_size:
            opened.resize_token_embeddings(len(self.tokenizer), mean_resizing=False)
            self.config.vocab_size = opened.config.vocab_size
        for config in (self.config, opened.config):
            self._pad(config)
        return found

    def _pad(self, config: PretrainedConfig) -> None:
        """Set the padding token in a configuration that has none, and of a decoder, whose classifier looks for it.

        A token that was added comes once there is an embedding for it, without which Llama would not open.
        """
        if self.tokenizer is None or self.tokenizer.pad_token_id >= getattr(config, "vocab_size", 0):
            return
        if config.pad_token_id is None or _is_decoder(config):
            config.pad_token_id = self.tokenizer.pad_token_id

    @staticmethod
    def _came_with_a_head(head: dict[str, Any], loading: dict[str, Any]) -> bool:
        """Return whether the source has its own classification head, so that no parameter of the head is missing.

        Parameters of another shape are also listed as missing, although the source has them.
        """
        absent = set(loading["missing_keys"]) - {name for name, *_ in loading["mismatched_keys"]}
        return not head.keys() & absent

    def _draw_again(self, head: dict[str, Any], config: PretrainedConfig) -> None:
        """Replace a head's weights by those of a new model."""
        torch.manual_seed(self.seed)
        fresh: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
        drawn = dict(fresh.named_parameters())
        for name, parameter in head.items():
            parameter.data.copy_(drawn[name].data)


def _is_decoder(config: PretrainedConfig) -> bool:
    return type(config) not in AutoModelForMaskedLM._model_mapping and not config.is_encoder_decoder


def _labelled(config: PretrainedConfig, labels: tuple[str, ...] | None) -> PretrainedConfig:
    """Return a configuration, or a copy of it for other labels."""
    if labels is None:
        return config
    own = copy.deepcopy(config)
    own.update(label_names(labels))
    return own


def label_names(labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration entries that give a classifier its class names; without any it is a regression."""
    if not labels:
        return {"num_labels": 1, "problem_type": "regression"}
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: i for i, label in enumerate(labels)},
        "problem_type": None,  # of classes, also where the source, or another task, is a regression
    }
