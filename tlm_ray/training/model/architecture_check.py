"""Test-run an architecture with random weights, before any expensive stage is made."""

from collections.abc import Sequence
from typing import Any

from tlm_ray.training.encoders.special_ids import SPECIAL_IDS
from tlm_ray.training.encoders.starts import Architecture, Pretrained, Trimmed, opened
from tlm_ray.training.model.architectures import refuse_by_type
from tlm_ray.training.objectives import Objective

# Weights of the layers, 12 x layers x width^2. base has 85 million, whose test run takes 2 s and 1 GB.
LARGEST_TRIED = 100e6


def try_architecture(
    start: Architecture | Pretrained, objectives: Sequence[Objective], *, packed: bool, longest: int
) -> None:
    """Create a randomly initialised model and check its outputs; ValueError if it cannot be trained.

    longest: tokens of a row. Models above LARGEST_TRIED are checked by type only.
    """
    from transformers import AutoConfig

    from tlm_ray.storage.opening import open_settings
    from tlm_ray.training.encoders.weights import RandomWeights, label_names
    from tlm_ray.training.model.joint import JointModel
    from tlm_ray.training.model.layouts import check_length

    with opened(start.source) as folder:
        config = open_settings(AutoConfig, folder, **label_names(("a", "b")))
        if isinstance(start, Trimmed):
            from tlm_ray.training.encoders.trimmed import check_trimmed

            check_trimmed(folder, config, layers=start.layers)
    refuse_by_type(config, objectives)
    if _size(config) <= LARGEST_TRIED:
        for name in SPECIAL_IDS:  # ids of the original vocabulary; a tokenizer's replace them
            number = getattr(config, name, None)
            if (name == "pad_token_id" and number is None) or (isinstance(number, int) and number >= config.vocab_size):
                setattr(config, name, 0)
        model = JointModel(RandomWeights(config, seed=0), objectives)
        check_length(model.on("cpu", packed=packed), longest)


def _size(config: Any) -> float:
    return 12.0 * getattr(config, "num_hidden_layers", 0) * getattr(config, "hidden_size", 0) ** 2
