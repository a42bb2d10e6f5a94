"""GPT-2."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.encoders.families.family import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Gpt2(Family):
    """GPT-2 (Radford et al. 2019): a decoder, for the objective `Clm`; its classifier reads a row's last token."""

    name: ClassVar[str] = "gpt2"

    def config(self, geometry: Geometry, **common: Any) -> "PretrainedConfig":
        from transformers import GPT2Config

        sizes = {"n_inner": common.pop("intermediate_size"), "use_cache": False}
        dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), geometry.dropout)
        return GPT2Config(bos_token_id=None, eos_token_id=None, **(common | sizes | dropouts))

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        """Count the parameters of transformers' GPT2LMHeadModel; its output projection is the token table."""
        width, inner = geometry.width, geometry.intermediate
        norm = 2 * width
        attention = (width + 1) * 3 * width + (width + 1) * width
        layer = attention + (width + 1) * inner + (inner + 1) * width + 2 * norm
        return (vocabulary + geometry.positions) * width + geometry.layers * layer + norm
