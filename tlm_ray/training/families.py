"""Families of encoders that are trained from random weights: each knows its configuration and its parameters.

A family of your own is a frozen dataclass that derives from `Family`, given as `Geometry(family=...)`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # transformers takes 2 s, which the driver of an experiment never needs
    from transformers import PretrainedConfig


def fastest_attention(*, on_cpu: bool, packed: bool) -> str:
    """Return the name of the attention that is fastest on a device (`tlm_ray.training.cpu`, `packing`, or torch's)."""
    return "packed" if packed else "plain_cpu" if on_cpu else "sdpa"


@dataclass(frozen=True)
class Family(ABC):
    """A kind of encoder in transformers."""

    name: ClassVar[str]

    @abstractmethod
    def config(self, geometry: "Geometry", **common: Any) -> "PretrainedConfig":
        """Return the configuration of a geometry.

        common: what all of transformers' configurations name alike (`Geometry.common`), vocabulary and labels included.
        """

    @abstractmethod
    def parameters(self, geometry: "Geometry", *, vocabulary: int) -> int:
        """Return the parameters of the encoder with its masked-language-model head, the tied table counted once."""

    def attention(self, *, on_cpu: bool, packed: bool) -> str:
        """Return the name of the attention that the encoder takes on a device."""
        return fastest_attention(on_cpu=on_cpu, packed=packed)


@dataclass(frozen=True)
class Bert(Family):
    """BERT (Devlin et al. 2019): learned positions, norms after residual sums."""

    name: ClassVar[str] = "bert"

    def config(self, geometry: "Geometry", **common: Any) -> "PretrainedConfig":
        from transformers import BertConfig

        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), geometry.dropout)
        return BertConfig(**(common | dropouts))

    def parameters(self, geometry: "Geometry", *, vocabulary: int) -> int:
        """With a vocabulary of 30,522 and 512 positions, base has 109,514,298 and large 335,174,458."""
        width, inner = geometry.width, geometry.intermediate
        norm = 2 * width  # scale and shift
        segments = 2
        embeddings = (vocabulary + geometry.positions + segments) * width + norm
        attention = 4 * _dense(width, width) + norm  # query, key, value, output
        feed_forward = _dense(width, inner) + _dense(inner, width) + norm
        head = _dense(width, width) + norm + vocabulary  # transform, norm, output bias
        return embeddings + geometry.layers * (attention + feed_forward) + head


@dataclass(frozen=True)
class ModernBert(Family):
    """ModernBERT (Warner et al. 2024): rotary positions, norms before products, gated feed-forward.

    It learns to attend in a third of the steps. Its heads take the mean of a row.
    """

    name: ClassVar[str] = "modernbert"

    def config(self, geometry: "Geometry", **common: Any) -> "PretrainedConfig":
        from transformers import ModernBertConfig

        common |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
        common |= dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), geometry.dropout)
        layers = ["full_attention"] * geometry.layers  # rows are short
        return ModernBertConfig(classifier_pooling="mean", layer_types=layers, **common)

    def parameters(self, geometry: "Geometry", *, vocabulary: int) -> int:
        width = geometry.width
        layer = 4 * width**2 + 3 * width * geometry.intermediate + 2 * width
        without_first_norm = geometry.layers * layer - width  # the first layer's attention has no norm of its own
        head = width**2 + width + vocabulary
        return vocabulary * width + width + without_first_norm + width + head


FAMILIES: dict[str, Family] = {family.name: family for family in (Bert(), ModernBert())}


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The sizes of an encoder of random weights."""

    layers: int
    width: int
    """size of a hidden state"""
    heads: int
    """attention heads"""
    intermediate: int
    """inner size of the feed-forward part"""
    positions: int = 512
    """tokens that a row may have"""
    dropout: float = 0.1
    init_std: float = 0.02
    """standard deviation of the random weights"""
    family: str | Family = "bert"
    """"bert", "modernbert", or a family of your own"""

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family) and self.family not in FAMILIES:
            allowed = f"allowed are {', '.join(FAMILIES)}, or a Family of your own"
            raise ValueError(f"family {self.family!r}: {allowed}")

    @property
    def of_family(self) -> Family:
        """The family itself, whether it was given by name or as an object."""
        return self.family if isinstance(self.family, Family) else FAMILIES[self.family]

    @property
    def common(self) -> dict[str, Any]:
        """The sizes by the names that transformers' configurations share."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.positions,
            "initializer_range": self.init_std,
            "classifier_dropout": 0.0,
        }

    def parameters(self, *, vocabulary: int) -> int:
        """Return the parameters of the encoder with its masked-language-model head."""
        return self.of_family.parameters(self, vocabulary=vocabulary)


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs
