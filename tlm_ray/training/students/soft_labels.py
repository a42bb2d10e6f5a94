"""Make soft labels: the mean of trained models' predictions, for distillation (Hinton et al. 2015)."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tlm_ray import storage
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.tokens.blocks import read_blocks, write_blocks

LABELS = "labels.arrow"
CHUNK_ROWS = 2048  # labelled by one task: MiniLM needs 11 to 34 s of a core


class Labelled(NamedTuple):
    """A chunk of rows that a teacher labelled."""

    start: int
    """number of its first row"""
    labels: np.ndarray
    """float32: probabilities (rows, classes), or numbers (rows, 1)"""
    seconds: float
    """of one worker, without opening the teacher"""


def chunks_of(rows: int) -> list[dict[str, int]]:
    """Return the chunks of so many rows, the items of parallel work."""
    starts = range(0, rows, CHUNK_ROWS)
    return [{"start": start, "rows": min(CHUNK_ROWS, rows - start)} for start in starts]


def write_teacher_labels(folder: str, blocks: str, made: Iterable[Labelled]) -> dict[str, Any]:
    """Write a teacher's labels of all rows; return the workers' seconds and its accuracy on the training rows.

    made: all chunks, in any order.
    """
    chunks = sorted(made, key=lambda chunk: chunk.start)
    found = np.concatenate([chunk.labels for chunk in chunks])
    column = pa.FixedSizeListArray.from_arrays(found.ravel(), found.shape[1])
    storage.write_table(storage.join(folder, LABELS), pa.table({"labels": column}))
    return {"worker_seconds": round(sum(chunk.seconds for chunk in chunks), 1)} | _agree(blocks, found)


def write_soft_labels(folder: str, blocks: str, rows: str, labelled: Sequence[str]) -> dict[str, Any]:
    """Write rows to learn, labelled with the mean of their teachers.

    labelled: folders by `write_teacher_labels`, one per teacher. Returns the number of teachers, and the accuracy of
    their mean on the training rows.
    """
    soft = np.mean([_read(each) for each in labelled], axis=0)
    made = read_blocks(storage.join(rows, BLOCKS[TASK]))
    write_blocks(storage.join(folder, BLOCKS[TASK]), [made], soft if soft.shape[1] > 1 else soft[:, 0])
    return {"teachers": len(labelled)} | _agree(blocks, soft)


def _read(folder: str) -> np.ndarray:
    column = storage.read_table(storage.join(folder, LABELS))["labels"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def _agree(blocks: str, found: np.ndarray) -> dict[str, float]:
    """Return the accuracy on the training rows, which come first; nothing for a regression."""
    if found.shape[1] == 1:
        return {}
    gold = read_blocks(storage.join(blocks, BLOCKS[TASK])).labels
    assert gold is not None, "training rows have labels"
    return {"agree": float((found[: len(gold)].argmax(axis=1) == gold).mean())}
