"""The task objective of an encoder-decoder: it writes the label's name (Raffel et al. 2020, T5, section 2.4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.objectives.labels import Labels
from tlm_ray.training.objectives.marked_labels import MarkedLabels
from tlm_ray.training.objectives.objective import Prediction
from tlm_ray.training.objectives.written import Written

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from tlm_ray.training.encoders.decoders import Decoder
    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True)
class TextLabels(Written, Labels):
    """Learns to write the name of a row's label; the class whose name is likeliest is predicted.

    The scores of classes are log-probabilities of their names, ends included. T5 writes freely instead, and counts a
    text that names no class as wrong. With soft labels, each name counts by its probability.
    """

    opens_as: ClassVar[str] = Written.opens_as

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing:
            raise ValueError(f"labels: smoothing {self.smoothing}: the names of labels have none; leave it out")

    @property
    def in_stage_one(self) -> "TextLabels":
        return self

    def head(self, weights: "Weights") -> "Decoder":
        """Return the decoder; ValueError for a regression, whose numbers have no names."""
        if weights.config.problem_type == "regression":
            raise ValueError("labels: a regression's numbers have no names; take an encoder, with labels=Labels()")
        return super().head(weights)

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        hidden, labels = features.rectangle, prediction.values
        if labels.dim() > 1:
            return -(labels * head(*hidden)).sum()
        return -head.log_probabilities(*hidden, head.texts[labels]).sum()


def classifier_of(config: "PretrainedConfig") -> Labels:
    """Return the task objective whose head a trained model has, by what its training wrote into the configuration."""
    if hasattr(config, "marks"):
        return MarkedLabels()
    return TextLabels() if hasattr(config, "label_tokens") else Labels()
