"""The protocol of an encoder family, trained from random weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # importing transformers takes 2 s, and an experiment's driver does not need it
    from transformers import PretrainedConfig

    from tlm_ray.training.families.geometry import Geometry


def fastest_attention(*, on_cpu: bool, packed: bool) -> str:
    """Return the name of the fastest attention on a device (`tlm_ray.training.cpu`, `packing`, or torch's)."""
    return "packed" if packed else "plain_cpu" if on_cpu else "sdpa"


@dataclass(frozen=True)
class Family(ABC):
    """An encoder architecture of transformers."""

    name: ClassVar[str]

    @abstractmethod
    def config(self, geometry: "Geometry", **common: Any) -> "PretrainedConfig":
        """Return the configuration of a geometry.

        common: arguments that all configurations of transformers share (`Geometry.common`), with vocabulary and labels.
        """

    @abstractmethod
    def parameters(self, geometry: "Geometry", *, vocabulary: int) -> int:
        """Return the number of parameters with the masked-language-model head; the tied table counts once."""

    def attention(self, *, on_cpu: bool, packed: bool) -> str:
        """Return the name of the attention to use on a device."""
        return fastest_attention(on_cpu=on_cpu, packed=packed)
