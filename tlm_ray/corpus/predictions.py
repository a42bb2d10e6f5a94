"""Predictions of labelled rows, as scores stages keep them."""

import numpy as np
import pyarrow as pa

from tlm_ray import storage


def decide(logits: np.ndarray) -> np.ndarray:
    """Return what is predicted, (rows,): the best class, or with one column, a regression's, the number."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def write_predictions(folder: str, split: str, gold: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Keep a split's gold labels, predictions and logits (rows, classes) in a folder; return the predictions."""
    predicted = decide(logits)
    table = pa.table({"gold": gold, "predicted": predicted, "logits": pa.array(list(logits))})
    storage.write_table(storage.join(folder, f"{split}_predictions.arrow"), table)
    return predicted
