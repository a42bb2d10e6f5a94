"""ELECTRA's discriminator."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Electra(Family):
    """ELECTRA (Clark et al. 2020): BERT's encoder, with a head that tells replaced tokens from real ones.

    Token embeddings are as wide as the encoder.
    """

    name: ClassVar[str] = "electra"

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import ElectraConfig

        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), geometry.dropout)
        return ElectraConfig(embedding_size=geometry.width, **(common | dropouts))

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count the parameters of transformers' ElectraForMaskedLM."""
        width, inner = geometry.width, geometry.intermediate
        segments, norm = 2, 2 * width
        embeddings = (vocabulary + geometry.positions + segments) * width + norm
        layer = 4 * (width + 1) * width + norm + (width + 1) * inner + (inner + 1) * width + norm
        head = (width + 1) * width + norm + vocabulary  # transform, norm, output bias
        return embeddings + geometry.layers * layer + head
