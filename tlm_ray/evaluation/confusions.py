"""Compute metrics of many confusion matrices at once, for leaving out each row of a test set.

A confusion matrix, (..., classes, classes), counts rows by gold class (first) and predicted class (second). Each
function returns (...), shares of 0 to 1 (Matthews' from -1), as scikit-learn computes them; 0 where undefined.
"""

import numpy as np


def accuracy(counts: np.ndarray) -> np.ndarray:
    """Return the accuracy, which is also micro-F1 if every row has one class."""
    return np.trace(counts, axis1=-2, axis2=-1) / counts.sum((-2, -1))


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Return the mean F1 over the classes seen in gold or predicted."""
    seen = _marginals(counts) > 0
    return np.where(seen, _f1(counts), 0.0).sum(-1) / seen.sum(-1)


def matthews(counts: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation coefficient for any number of classes (Gorodkin 2004)."""
    gold, predicted, rows = counts.sum(-1), counts.sum(-2), counts.sum((-2, -1))
    covariance = np.trace(counts, axis1=-2, axis2=-1) * rows - (gold * predicted).sum(-1)
    spread = np.sqrt((rows**2 - (gold**2).sum(-1)) * (rows**2 - (predicted**2).sum(-1)))
    return np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0)


def accuracy_f1(counts: np.ndarray) -> np.ndarray:
    """Return the mean of accuracy and the F1 of class 1."""
    return (accuracy(counts) + _f1(counts)[..., 1]) / 2


def _marginals(counts: np.ndarray) -> np.ndarray:
    return counts.sum(-1) + counts.sum(-2)


def _f1(counts: np.ndarray) -> np.ndarray:
    both, right = _marginals(counts), np.diagonal(counts, axis1=-2, axis2=-1)
    return np.divide(2.0 * right, both, out=np.zeros(both.shape), where=both > 0)
