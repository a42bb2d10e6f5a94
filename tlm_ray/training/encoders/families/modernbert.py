"""ModernBERT."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class ModernBert(Family):
    """ModernBERT (Warner et al. 2024): rotary positions, pre-norm, gated feed-forward.

    It learns to attend in a third of BERT's steps. Its heads use mean pooling.
    """

    name: ClassVar[str] = "modernbert"

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import ModernBertConfig

        common |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
        common |= dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), geometry.dropout)
        layers = ["full_attention"] * geometry.layers  # rows are short
        return ModernBertConfig(classifier_pooling="mean", layer_types=layers, **common)

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        width = geometry.width
        layer = 4 * width**2 + 3 * width * geometry.intermediate + 2 * width
        without_first_norm = geometry.layers * layer - width  # the first layer's attention has no norm of its own
        head = width**2 + width + vocabulary
        return vocabulary * width + width + without_first_norm + width + head
