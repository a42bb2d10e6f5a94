"""BERT."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Bert(Family):
    """BERT (Devlin et al. 2019): learned positions, norms after residual sums."""

    name: ClassVar[str] = "bert"

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import BertConfig

        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), geometry.dropout)
        return BertConfig(**(common | dropouts))

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count parameters: 109,514,298 for base, 335,174,458 for large (vocabulary 30,522, 512 positions)."""
        width, inner = geometry.width, geometry.intermediate
        norm = 2 * width  # scale and shift
        segments = 2
        embeddings = (vocabulary + geometry.positions + segments) * width + norm
        attention = 4 * _dense(width, width) + norm  # query, key, value, output
        feed_forward = _dense(width, inner) + _dense(inner, width) + norm
        head = _dense(width, width) + norm + vocabulary  # transform, norm, output bias
        return embeddings + geometry.layers * (attention + feed_forward) + head


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs
