"""The protocol of a family of encoders that are trained from random weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # transformers takes 2 s, which the driver of an experiment never needs
    from transformers import PretrainedConfig

    from tlm_ray.training.families.geometry import Geometry


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
