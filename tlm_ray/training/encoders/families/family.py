"""An encoder with random weights: the protocol of its family, and its sizes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # importing transformers takes 2 s, and an experiment's driver does not need it
    from transformers import PretrainedConfig


def fastest_attention(*, on_cpu: bool, packed: bool) -> str:
    """Return the name of the fastest attention on a device (`tlm_ray.training.kernels.cpu`, `packing`, or torch's)."""
    return "packed" if packed else "plain_cpu" if on_cpu else "sdpa"


@dataclass(frozen=True)
class Family(ABC):
    """An encoder architecture of transformers."""

    name: ClassVar[str]
    writes: ClassVar[bool] = False
    """whether it has a decoder that writes texts, labels among them"""

    @abstractmethod
    def config(self, geometry: "Geometry", **common: Any) -> "PretrainedConfig":
        """Return the configuration of a geometry.

        common: arguments that all configurations of transformers share (`Geometry.common`), with vocabulary and labels.
        """

    @abstractmethod
    def parameters(self, geometry: "Geometry", *, vocabulary: int) -> int:
        """Return the number of parameters with the masked-language-model head; the tied table counts once."""

    def table_width(self, geometry: "Geometry") -> int:
        """Return the width of the token table."""
        return geometry.width

    def attention(self, *, on_cpu: bool, packed: bool) -> str:
        """Return the name of the attention to use on a device."""
        return fastest_attention(on_cpu=on_cpu, packed=packed)


FAMILIES: dict[str, Family] = {}  # by name; the package fills it


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Sizes of an encoder with random weights."""

    layers: int
    width: int
    """hidden size"""
    heads: int
    """attention heads"""
    intermediate: int
    """inner size of the feed-forward layers"""
    positions: int = 512
    """maximum tokens per row"""
    dropout: float = 0.1
    init_std: float = 0.02
    """standard deviation of the random weights"""
    family: str | Family = "bert"
    """name of a family (`FAMILIES`), such as "bert" or "electra", or a family of your own"""

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family) and self.family not in FAMILIES:
            allowed = f"allowed are {', '.join(FAMILIES)}, or a Family of your own"
            raise ValueError(f"family {self.family!r}: {allowed}")

    @property
    def of_family(self) -> Family:
        """The family as an object, whether given by name or as an object."""
        return self.family if isinstance(self.family, Family) else FAMILIES[self.family]

    @property
    def common(self) -> dict[str, Any]:
        """The sizes, by the argument names of transformers' configurations."""
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
        """Return the number of parameters of the encoder with its masked-language-model head."""
        return self.of_family.parameters(self, vocabulary=vocabulary)
