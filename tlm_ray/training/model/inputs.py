"""Move a batch to its device: the encoder's inputs, padded or packed, and the objectives' targets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tlm_ray.training.model.packing import pack
from tlm_ray.training.objectives import Prediction
from tlm_ray.training.sampler.batches import Batch


def to_device(batch: Batch, device: str, *, first: int | None = None) -> tuple[dict[str, Any], dict[str, Prediction]]:
    """Move a batch's arrays to the device, as arguments of the model's forward.

    first: number of a row's first position, to pack the rows; None keeps them padded.
    """

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

    arrays: Mapping[str, np.ndarray | None]
    if first is None:
        arrays, place = (
            {"input_ids": batch.tokens, "attention_mask": batch.attention, "token_type_ids": batch.types},
            None,
        )
    else:
        arrays, place = pack(batch, first=first)
    known = {name: array for name, array in arrays.items() if array is not None}
    inputs = {name: tensor(array) if array.ndim else int(array) for name, array in known.items()}
    predictions = {}
    for name, targets in batch.targets.items():
        places = targets.places
        if places is not None and place is not None:
            places = place[places]
        predictions[name] = Prediction(tensor(targets.flat), None if places is None else tensor(places))
    return inputs, predictions
