"""Test-run an architecture with random weights, before any expensive stage is made."""

from collections.abc import Sequence
from typing import Any

from tlm_ray import storage
from tlm_ray.training.model.architectures import refuse_by_type
from tlm_ray.training.objectives import Objective

# Weights of the layers, 12 x layers x width^2. base has 85 million, whose test run takes 2 s and 1 GB.
LARGEST_TRIED = 100e6


def try_architecture(source: str, objectives: Sequence[Objective], *, packed: bool, longest: int) -> None:
    """Create a randomly initialised model and check its outputs; ValueError if it cannot be trained.

    source: hub name, folder or URI. longest: tokens of a row. Models above LARGEST_TRIED are checked by type only.
    """
    from transformers import AutoConfig

    from tlm_ray.storage.opening import open_settings
    from tlm_ray.training.encoders.starts import SPECIAL_IDS, opened
    from tlm_ray.training.encoders.weights import RandomWeights, label_names
    from tlm_ray.training.model.joint import JointModel

    with opened(source) as folder:
        config = open_settings(AutoConfig, folder, **label_names(("a", "b")))
    refuse_by_type(config, objectives)
    if _size(config) <= LARGEST_TRIED:
        for name in SPECIAL_IDS:  # ids of the original vocabulary; a tokenizer's replace them
            number = getattr(config, name, None)
            if (name == "pad_token_id" and number is None) or (isinstance(number, int) and number >= config.vocab_size):
                setattr(config, name, 0)
        model = JointModel(RandomWeights(config, seed=0), objectives)
        positions = _positions(model.encoder)
        if positions is not None and longest > positions:
            raise ValueError(
                f"encoder {storage.shown(source)!r}: has {positions} positions, and the recipe's rows have up to "
                f"{longest} tokens; take a scale of shorter rows, or another encoder"
            )
        model.on("cpu", packed=packed)


def _positions(encoder: Any) -> int | None:
    """Return the most tokens that a row may have; None for an encoder without a table of positions."""
    from torch import nn

    from tlm_ray.training.model.packing import first_position

    tables = [module for name, module in encoder.named_modules() if name.split(".")[-1] == "position_embeddings"]
    sizes = [table.num_embeddings for table in tables if isinstance(table, nn.Embedding)]
    return min(sizes) - first_position(encoder) if sizes else None


def _size(config: Any) -> float:
    return 12.0 * getattr(config, "num_hidden_layers", 0) * getattr(config, "hidden_size", 0) ** 2
