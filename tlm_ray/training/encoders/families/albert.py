"""ALBERT."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Albert(Family):
    """ALBERT (Lan et al. 2020): one layer, used again and again, and a token table narrower than the encoder."""

    name: ClassVar[str] = "albert"

    table: int = 128
    """width of the token table, at most that of the encoder (128 in the paper)"""

    def __post_init__(self) -> None:
        if self.table < 1:
            raise ValueError(f"albert table {self.table}: must be 1 or more, the width of token embeddings")

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import AlbertConfig

        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), geometry.dropout)
        common["classifier_dropout_prob"] = common.pop("classifier_dropout")
        return AlbertConfig(embedding_size=self.table_width(geometry), **(common | dropouts))

    def table_width(self, geometry: Geometry) -> int:
        return min(self.table, geometry.width)

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count the parameters of transformers' AlbertForMaskedLM: 11,221,680 for base (vocabulary 30,000)."""
        width, inner, table = geometry.width, geometry.intermediate, self.table_width(geometry)
        segments, norm = 2, 2 * width
        embeddings = (vocabulary + geometry.positions + segments) * table + 2 * table + (table + 1) * width
        layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 2 * norm
        head = (width + 1) * table + 2 * table + vocabulary  # transform to the table's width, norm, output bias
        return embeddings + layer + head
