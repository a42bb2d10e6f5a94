"""DistilBERT."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class DistilBert(Family):
    """DistilBERT (Sanh et al. 2019): BERT's encoder without token types and pooler."""

    name: ClassVar[str] = "distilbert"

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import DistilBertConfig

        others = {name: value for name, value in common.items() if name not in geometry.common}
        dropouts = dict.fromkeys(("dropout", "attention_dropout"), geometry.dropout)
        sizes = {"dim": geometry.width, "hidden_dim": geometry.intermediate, "n_layers": geometry.layers}
        more = {"n_heads": geometry.heads, "max_position_embeddings": geometry.positions, "seq_classif_dropout": 0.0}
        return DistilBertConfig(**(others | dropouts | sizes | more), initializer_range=geometry.init_std)

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count the parameters of transformers' DistilBertForMaskedLM: 66,985,530 for base (vocabulary 30,522)."""
        width, inner = geometry.width, geometry.intermediate
        norm = 2 * width
        embeddings = (vocabulary + geometry.positions) * width + norm
        layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 2 * norm
        head = (width + 1) * width + norm + vocabulary  # transform, norm, output bias
        return embeddings + geometry.layers * layer + head
