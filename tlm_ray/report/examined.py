"""What the best row of a task gets wrong, and how certain it is, as plain values for a report."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tlm_ray.evaluation.calibration import Bin


@dataclass(frozen=True, kw_only=True)
class Near:
    """A training text that resembles a text of the split."""

    text: str
    label: str
    """its class"""


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A row that is predicted wrongly."""

    row: int
    """its place in the split, from 0"""
    text: str
    """both texts of a pair are joined"""
    gold: str
    """its class"""
    predicted: str
    """the class predicted"""
    gold_share: float
    """predicted probability of its class"""
    predicted_share: float
    """probability of the predicted class"""
    nearest: Sequence[Near] = ()
    """similar training texts, the nearest first"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Examined:
    """The predictions of a task's best row on dev."""

    task: str
    """the task's short name"""
    row: str
    """the table's row"""
    run: str
    """which of its trainings, "" for the only one or an ensemble"""
    split: str
    """the split of the table's scores"""
    labels: Sequence[str]
    """the classes"""
    counts: np.ndarray
    """(classes, classes), rows by class and predicted class"""
    bins: Sequence[Bin]
    """of equal numbers of rows, from the least to the most certain"""
    errors: Sequence[Wrong]
    """the worst errors, lowest probability of the right class first"""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A retrieved passage."""

    text: str
    source: str
    rank: int
    """0 for the best of its query"""
    score: float
    """by the retrieval method"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What was retrieved for a training text."""

    task: str
    """the task's short name"""
    method: str
    """name of the retrieval method"""
    text: str
    """the training text"""
    query: str
    """what was searched for"""
    passages: Sequence[Passage]
    """the best ones, of those that no other text has at a better rank"""
