"""Measure calibration: whether a model that is 80 % certain is right in 80 % of such rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BINS = 10


class Bin(NamedTuple):
    """Rows of similar confidence, the probability of the predicted class."""

    rows: int
    """how many they are"""
    confidence: float
    """their mean confidence, 0 to 1"""
    accuracy: float
    """share of them that is right, 0 to 1"""


def confidence_bins(gold: np.ndarray, probabilities: np.ndarray) -> list[Bin]:
    """Return bins of equal numbers of rows (one more in the first if needed), from the least to the most certain.

    gold: (rows,) class ids. probabilities: (rows, classes). Fewer rows than BINS make a bin each.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == gold
    parts = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    return [Bin(len(rows), float(confidence[rows].mean()), float(right[rows].mean())) for rows in parts if len(rows)]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error, 0 to 1: the mean gap of confidence and accuracy, weighted by rows.

    Naeini et al. (2015), with bins of equal numbers of rows (Nguyen and O'Connor 2015).
    """
    total = sum(each.rows for each in bins)
    return sum(each.rows * abs(each.accuracy - each.confidence) for each in bins) / total
