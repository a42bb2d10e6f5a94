"""Refuse architectures of transformers that cannot be trained here, by their type or by a test run."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tlm_ray.training.objectives import Objective

if TYPE_CHECKING:
    from transformers import PretrainedConfig

OTHERS = "take an encoder, such as bert, roberta, albert, modernbert, distilbert or electra"
# Weights of the layers, 12 x layers x width^2. base has 85 million, whose test run takes 2 s and 1 GB.
LARGEST_TRIED = 100e6


def refuse_by_type(config: "PretrainedConfig", objectives: Iterable[Objective]) -> None:
    """Raise ValueError for an encoder-decoder, or if transformers has no model of this type for an objective."""
    import transformers

    for objective in objectives:
        if objective.opens_as == "AutoModel":  # the objective has its own head
            continue
        if getattr(config, "is_encoder_decoder", False):
            raise refusal(config, "it is an encoder-decoder, and only encoders are trained here")
        if type(config) not in getattr(transformers, objective.opens_as)._model_mapping:
            raise refusal(
                config,
                f"it is a decoder, or learns by other means: transformers has no {objective.opens_as} of it, which the "
                f"objective {objective.name!r} needs",
            )


def refusal(config: "PretrainedConfig", why: str) -> ValueError:
    """Return the error of an architecture that cannot be trained."""
    return ValueError(f"architecture {config.model_type!r}: {why}; {OTHERS}")


def try_architecture(source: str, objectives: Sequence[Objective], *, packed: bool) -> None:
    """Create a randomly initialised model and check its outputs; ValueError if it cannot be trained.

    source: hub name, folder or URI. Models above LARGEST_TRIED are checked by type only.
    """
    from transformers import AutoConfig

    from tlm_ray.opening import open_settings
    from tlm_ray.training.model import JointModel
    from tlm_ray.training.starts import SPECIAL_IDS, opened
    from tlm_ray.training.weights import RandomWeights, label_names

    with opened(source) as folder:
        config = open_settings(AutoConfig, folder, **label_names(("a", "b")))
    refuse_by_type(config, objectives)
    if _size(config) <= LARGEST_TRIED:
        for name in SPECIAL_IDS:  # ids of the original vocabulary; a tokenizer's replace them
            number = getattr(config, name, None)
            if (name == "pad_token_id" and number is None) or (isinstance(number, int) and number >= config.vocab_size):
                setattr(config, name, 0)
        JointModel(RandomWeights(config, seed=0), objectives).on("cpu", packed=packed)


def _size(config: Any) -> float:
    return 12.0 * getattr(config, "num_hidden_layers", 0) * getattr(config, "hidden_size", 0) ** 2
