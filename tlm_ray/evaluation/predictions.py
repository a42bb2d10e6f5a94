"""Write and read predictions of labelled rows, as scores stages store them."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tlm_ray import storage


class Predicted(NamedTuple):
    """The predictions of a split."""

    gold: np.ndarray
    """(rows,) class ids or numbers"""
    predicted: np.ndarray
    """(rows,) predicted class ids or numbers"""
    logits: np.ndarray
    """(rows, classes), or (rows, 1) for a regression"""


def check_finite(logits: np.ndarray, model: str) -> None:
    """Raise ValueError if a model gives NaN or infinity; else NaN would count as the first class."""
    wrong = np.flatnonzero(~np.isfinite(logits).all(axis=tuple(range(1, logits.ndim))))
    if len(wrong):
        raise ValueError(
            f"model {model!r}: {len(wrong):,} of {len(logits):,} scores are not finite; its weights are corrupt "
            "or too large for bf16 (give precision fp32)"
        )


def decide(logits: np.ndarray) -> np.ndarray:
    """Return predictions, (rows,): the best class, or the number if there is one column (regression)."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def shares(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits, (..., classes); a regression's numbers, (..., 1), stay unchanged."""
    if logits.shape[-1] == 1:
        return logits
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def write_predictions(folder: str, split: str, gold: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Write a split's gold labels, predictions and logits (rows, classes) to a folder; return the predictions."""
    predicted = decide(logits)
    table = pa.table({"gold": gold, "predicted": predicted, "logits": pa.array(list(logits))})
    storage.write_table(_file(folder, split), table)
    return predicted


def read_predictions(folder: str, split: str) -> Predicted:
    """Read predictions by `write_predictions`."""
    table = storage.read_table(_file(folder, split))
    gold, predicted = (table[name].to_numpy() for name in ("gold", "predicted"))
    logits = table["logits"].combine_chunks().flatten().to_numpy()
    return Predicted(gold, predicted, logits.reshape(len(gold), -1))


def has_predictions(folder: str, split: str) -> bool:
    """Return whether a folder has predictions of a split."""
    return storage.exists(_file(folder, split))


def _file(folder: str, split: str) -> str:
    return storage.join(folder, f"{split}_predictions.arrow")
