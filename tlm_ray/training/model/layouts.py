"""Check that a row's result does not depend on padding or on the other rows of its batch.

In transformers 5.23, ConvBERT and FNet are affected by padding. BigBird, DeBERTa-v2, MPNet and XLM are affected by
other rows of a packed batch, because their attention ignores row boundaries.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from tlm_ray.training.encoders.heads import Head, sample_rows
from tlm_ray.training.model import packing
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Labels, Loss
from tlm_ray.training.sampler.batches import Batch

FURTHER = 4  # additional padding of the sample rows, which have 4 and 2 tokens
# Relative to the largest value. Rounding differs by 1e-7 to 1e-5, padding by 4e-4 (Nystromformer) or more, other rows
# by 6e-3 or more.
TOLERANCE = 1e-4


@torch.no_grad()
def check_layouts(model: Any, device: str, *, packed: bool) -> None:
    """Compare the results of two short rows with padding, with more padding and, if `packed`, packed.

    ValueError names the model type if they differ. Weights, modes and random state are unchanged.
    """
    sample = {name: tensor.numpy() for name, tensor in sample_rows(model.config).items()}
    padded = _batch(sample["input_ids"], sample["attention_mask"])
    wider = _batch(_widened(padded.tokens, model.config.pad_token_id or 0), _widened(padded.attention, 0))
    with _evaluated(model):
        if any(objective.is_causal for objective in model.objectives.values()):
            _check_causal(model, padded, device)
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


@torch.no_grad()
def check_length(model: Any, longest: int) -> None:
    """Run a row of `longest` tokens on a CPU; ValueError names the model type if it has too few positions."""
    tokens = sample_rows(model.config)["input_ids"][:1, :1].repeat(1, longest)
    try:
        with _evaluated(model):
            model.encode({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"architecture {model.config.model_type!r}: does not read a row of {longest} tokens, as long as the "
            "recipe's may be; take an encoder of more positions, or a recipe with lower block_tokens and task_tokens"
        ) from error


def _check_causal(model: Any, batch: Batch, device: str) -> None:
    """Raise ValueError if a row's first state depends on its last token."""
    others = batch.tokens.copy()
    others[0, -1] = others[0, 0]  # the first row has no padding
    states = [
        model.encode(to_device(replace(batch, tokens=tokens), device)[0])[:1, :-1] for tokens in (batch.tokens, others)
    ]
    if not _agree(states[:1], states[1:]):
        raise ValueError(
            f"architecture {model.config.model_type!r}: it is an encoder, whose states see later tokens, so next "
            "tokens would be copied; take a decoder, such as gpt2 or llama, or give Mlm()"
        )


def _batch(tokens: np.ndarray, attention: np.ndarray) -> Batch:
    """Return a batch without targets."""
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
    classifiers = [name for name, one in model.objectives.items() if isinstance(one, Labels)]
    heads = [head for name in classifiers if isinstance(head := model.heads[name], Head)]
    return [hidden[inside.bool()], *(head(hidden, inside) for head in heads)]


def _agree(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    if [one.shape for one in some] != [other.shape for other in others]:
        return False
    pairs = zip(some, others, strict=True)
    return all(float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max()) for one, other in pairs)


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode, and restore the mode of each module afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
