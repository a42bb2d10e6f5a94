"""Count the parameters of an encoder that was not made here, from its configuration alone."""

import torch
import transformers
from transformers import AutoConfig, AutoModel

from tlm_ray.storage.opening import open_settings
from tlm_ray.training.encoders.configs import with_vocabulary_size
from tlm_ray.training.encoders.starts import Architecture, Pretrained, Start, opened


def counted_parameters(start: Start, *, vocabulary: int) -> int:
    """Return the number of parameters of a start, without a head if its size is only in its configuration.

    vocabulary: that of the recipe, which an architecture takes. ValueError for a start that names no encoder.
    """
    known = start.parameters(vocabulary=vocabulary)
    if known is not None:
        return known
    source = getattr(start, "source", "")
    if not source:
        raise ValueError(f"start {type(start).__name__}: has no known size; give a budget in tokens, not in minutes")
    transformers.utils.logging.set_verbosity_error()
    with opened(source) as folder:
        config = open_settings(AutoConfig, folder)
    if isinstance(start, Pretrained):
        config = start.resized(config)
    if isinstance(start, Architecture):
        config = with_vocabulary_size(config, vocabulary)
    with torch.device("meta"):  # no memory, no draws
        return AutoModel.from_config(config).num_parameters()
