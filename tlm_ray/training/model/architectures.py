"""Refuse architectures of transformers that cannot be trained here."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tlm_ray.training.encoders.families import FAMILIES
from tlm_ray.training.objectives import Objective
from tlm_ray.training.objectives.written import Written

if TYPE_CHECKING:
    from transformers import PretrainedConfig

OTHERS = (
    "take an encoder, such as bert, roberta, albert, modernbert, distilbert or electra, or give a decoder Clm(), or T5 "
    "Spans() and labels=TextLabels()"
)
ALONE = "; a pretrained decoder is fine-tuned on labels alone by --before plain"


def refuse_by_type(config: "PretrainedConfig", objectives: Iterable[Objective]) -> None:
    """Raise ValueError if an objective needs a decoder and has none, or the reverse, or transformers has no model."""
    import transformers

    for objective in objectives:
        if objective.opens_as == "AutoModel":  # the objective has its own head
            continue
        writes = config.model_type in FAMILIES and FAMILIES[config.model_type].writes
        if isinstance(objective, Written) and not writes:
            raise refusal(config, f"the objective {objective.name!r} trains T5 alone")
        if getattr(config, "is_encoder_decoder", False) and not isinstance(objective, Written):
            raise refusal(config, f"it is an encoder-decoder, and the objective {objective.name!r} cannot train it")
        if type(config) not in getattr(transformers, objective.opens_as)._model_mapping:
            decodes = type(config) in transformers.AutoModelForCausalLM._model_mapping
            why = f"transformers has no {objective.opens_as} of it, which the objective {objective.name!r} needs"
            if decodes and objective.opens_as == "AutoModelForMaskedLM":
                raise refusal(config, f"it is a decoder: {why}", more=ALONE)
            raise refusal(config, why)


def refusal(config: "PretrainedConfig", why: str, *, more: str = "") -> ValueError:
    """Return the error of an architecture that cannot be trained."""
    return ValueError(f"architecture {config.model_type!r}: {why}; {OTHERS}{more}")
