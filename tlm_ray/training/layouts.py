"""Sample rows held against each other in every layout: a row's result may not depend on what lies beside it.

Of transformers 5.23, ConvBERT and FNet see the padding behind a row; BigBird, DeBERTa-v2, MPNet and XLM see all rows
of a packed batch, because their attention does not look for the rows' bounds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from tlm_ray.training import packing
from tlm_ray.training.batches import Batch
from tlm_ray.training.heads import Head, sample_rows
from tlm_ray.training.inputs import to_device
from tlm_ray.training.objectives import Loss

FURTHER = 4  # tokens of padding that two rows of 4 and 2 tokens are padded further by
# Of the largest number: rounding is 1e-7 to 1e-5 of it; padding is 4e-4 (Nystromformer) and more, other rows 6e-3
TOLERANCE = 1e-4


@torch.no_grad()
def check_layouts(model: Any, device: str, *, packed: bool) -> None:
    """Hold two short rows padded, padded further and, if asked, packed against each other.

    ValueError names the model type where they differ. Weights, modes and random numbers stay as they are.
    """
    sample = {name: tensor.numpy() for name, tensor in sample_rows(model.config).items()}
    padded = _batch(sample["input_ids"], sample["attention_mask"])
    wider = _batch(_widened(padded.tokens, model.config.pad_token_id or 0), _widened(padded.attention, 0))
    with _evaluated(model):
        expected = _results(model, to_device(padded, device)[0])
        if not _agree(expected, _results(model, to_device(wider, device)[0])):
            raise ValueError(
                f"architecture {model.config.model_type!r}: its result for a row depends on the padding behind it, "
                "so on the other rows of a batch; take another architecture, such as bert, roberta or modernbert"
            )
        first = packing.first_position(model.encoder)
        if packed and not _agree(expected, _results(model, to_device(padded, device, first=first)[0])):
            raise ValueError(
                f"architecture {model.config.model_type!r}: with --packed its result for a row depends on the other "
                "rows; leave --packed out (packed=False), or take another, such as bert, roberta or modernbert"
            )


def _batch(tokens: np.ndarray, attention: np.ndarray) -> Batch:
    """Return rows of which nothing is to be predicted."""
    count = int(attention.sum())
    sizes: dict[str, Any] = {"tokens_total": count, "token_share": 1.0, "real_tokens": count}
    options: dict[str, Any] = {"stream": "sample", "loss": Loss(()), "types": None, "targets": {}}
    return Batch(tokens=tokens, attention=attention, **options, **sizes)


def _widened(array: np.ndarray, value: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, FURTHER)), constant_values=value)


def _results(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the hidden states of real tokens, (tokens, width), and each classifier's logits, (rows, classes)."""
    hidden, inside = packing.rectangle(model.encode(inputs), inputs)
    assert inside is not None, "padded rows have a mask"
    heads = [head for head in model.heads.values() if isinstance(head, Head) and head.last is None]
    return [hidden[inside.bool()], *(head(hidden, inside) for head in heads)]


def _agree(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    if [one.shape for one in some] != [other.shape for other in others]:
        return False
    pairs = zip(some, others, strict=True)
    return all(float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max()) for one, other in pairs)


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluate, and each part back to its own mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
