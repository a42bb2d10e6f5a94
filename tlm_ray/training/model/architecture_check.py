"""Test-run an architecture with random weights, before any expensive stage is made."""

from collections.abc import Sequence
from typing import Any

from tlm_ray.training.encoders.configs import with_vocabulary_size
from tlm_ray.training.encoders.starts import Architecture, Pretrained, opened
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
    from tlm_ray.training.tokens.pieces import check_pieces
    from tlm_ray.training.tokens.tokenizer import load_tokenizer

    with opened(start.source) as folder:
        config = open_settings(AutoConfig, folder, **label_names(("a", "b")))
        if start.pieces:
            check_pieces(load_tokenizer(folder))
        if isinstance(start, Pretrained):
            config = start.resized(config)
    refuse_by_type(config, objectives)
    if _size(config) <= LARGEST_TRIED:
        config = with_vocabulary_size(config, config.vocab_size)  # ids beyond it are of another tokenizer
        config.pad_token_id = getattr(config, "pad_token_id", None) or 0
        model = JointModel(RandomWeights(config, seed=0), objectives)
        check_length(model.on("cpu", packed=packed), longest)


def _size(config: Any) -> float:
    return 12.0 * getattr(config, "num_hidden_layers", 0) * getattr(config, "hidden_size", 0) ** 2
