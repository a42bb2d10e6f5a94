"""T5."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig

BUCKETS = 32  # of relative positions


@dataclass(frozen=True)
class T5(Family):
    """T5 (Raffel et al. 2020): an encoder and a decoder of equally many layers, for `Spans` and `TextLabels`.

    Random weights have T5's own sizes, and token embeddings a standard deviation of 1: `Counts(scale=1.0)` fits them.
    """

    name: ClassVar[str] = "t5"
    writes: ClassVar[bool] = True

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import T5Config

        for name in ("max_position_embeddings", "initializer_range", "classifier_dropout"):
            common.pop(name)
        sizes = {"d_ff": common.pop("intermediate_size"), "d_kv": geometry.width // geometry.heads}
        sizes |= {"num_decoder_layers": geometry.layers, "relative_attention_num_buckets": BUCKETS}
        return T5Config(dropout_rate=geometry.dropout, use_cache=False, **(common | sizes))

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count the parameters of transformers' T5ForConditionalGeneration, whose three token tables are one."""
        width, inner = geometry.width, geometry.intermediate
        attention, dense = 4 * width**2 + width, 2 * width * inner + width  # each with a norm
        layers = geometry.layers * (3 * attention + 2 * dense)
        return vocabulary * width + layers + 2 * width + 2 * BUCKETS * geometry.heads

    def attention(self, *, on_cpu: bool, packed: bool) -> str:
        """Return torch's, which adds the position bias; ValueError for packed rows, whose positions it ignores."""
        if packed:
            raise ValueError("family 't5': its relative positions allow no packed rows; leave --packed out")
        return "sdpa"
