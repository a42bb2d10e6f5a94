"""Adapters of a frozen encoder, by PEFT: a stage then trains few weights."""

import importlib.util
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank matrices beside every linear layer of the encoder, whose own weights are frozen (Hu et al. 2022).

    The heads learn in full. The exported model has the products added to its weights, so it opens without PEFT.
    """

    rank: int = 8
    """rows of the first matrix and columns of the second"""
    alpha: float = 16.0
    """their product is added with the weight alpha / rank"""

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"adapters rank {self.rank!r}: must be a whole number of 1 or more, such as 8")
        if not isinstance(self.alpha, int | float) or not 0 < self.alpha < math.inf:
            raise ValueError(f"adapters alpha {self.alpha!r}: must be above 0, such as twice the rank")
        if importlib.util.find_spec("peft") is None:
            raise ValueError("adapters: need peft, on every node; pip install 'tlm_ray[adapters]'")

    def add_to(self, encoder: Any) -> None:
        """Put the matrices into an encoder; their product begins as 0, and all other weights of it are frozen."""
        from peft import LoraConfig, inject_adapter_in_model
        from transformers.pytorch_utils import Conv1D

        transposed = any(isinstance(layer, Conv1D) for layer in encoder.modules())  # GPT-2 has no other linear layers
        how: dict[str, Any] = {"r": self.rank, "lora_alpha": self.alpha, "fan_in_fan_out": transposed}
        how |= {"target_modules": "all-linear"}
        inject_adapter_in_model(LoraConfig(**how), encoder)

    def merge(self, encoder: Any) -> None:
        """Add the products to the weights, and take the matrices out again."""
        from peft.tuners.lora import LoraLayer

        for name, layer in list(encoder.named_modules()):
            if isinstance(layer, LoraLayer):
                layer.merge()
                parent, _, own = name.rpartition(".")
                setattr(encoder.get_submodule(parent), own, layer.get_base_layer())
        del encoder.peft_config
