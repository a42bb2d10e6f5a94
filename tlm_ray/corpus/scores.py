"""Scores of predicted classes and numbers, as the paper reports them: percentages from scikit-learn and SciPy."""

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def score(metric: str, gold: Sequence[float] | np.ndarray, predicted: Sequence[float] | np.ndarray) -> float:
    """Return how well predicted class ids, or numbers, agree with gold ones, in percent.

    `metric` is one of METRICS; `gold` and `predicted` are class ids of equal length, or numbers for
    a metric of REGRESSION. The result is in [0, 100], except for "matthews" and correlations, in
    [-100, 100]. "macro_f1" averages over the classes seen in
    gold or predicted, one that was never predicted counting 0, as the released code did;
    "micro_f1" is over all classes, which equals accuracy where every row has one class;
    "accuracy_f1" is the mean of accuracy and the F1 of class 1 (GLUE's MRPC and QQP);
    "pearson_spearman" the mean of both correlations (GLUE's STS-B), 0 where all numbers are equal.
    Raises ValueError for an unknown metric or ids that it cannot compare.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is unknown; use one of {', '.join(METRICS)}")
    checked = _numbers if metric in REGRESSION else _class_ids
    gold_ids, predicted_ids = checked(metric, "gold", gold), checked(metric, "predicted", predicted)
    if len(gold_ids) != len(predicted_ids):
        raise ValueError(
            f"metric {metric!r} got {len(gold_ids)} gold and {len(predicted_ids)} predicted "
            "values; give one prediction for each gold one"
        )
    return 100.0 * METRICS[metric](gold_ids, predicted_ids)


def _numbers(metric: str, name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.size < 2 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError(
            f"metric {metric!r} got {name} of shape {array.shape} and type {array.dtype}; "
            "give a vector of two or more finite numbers"
        )
    return array.astype(np.float64)


def _class_ids(metric: str, name: str, ids: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return ids as an integer vector; floats are refused, for a cast would change them."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise ValueError(
            f"metric {metric!r} got {name} of shape {array.shape} and type {array.dtype}; "
            "give a non-empty vector of integer class ids"
        )
    return array.astype(np.int64)


def _f1(average: str) -> Callable[[np.ndarray, np.ndarray], float]:
    def compute(gold: np.ndarray, predicted: np.ndarray) -> float:
        return float(f1_score(gold, predicted, average=average, zero_division=0))

    return compute


def _accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(accuracy_score(gold, predicted))


def _matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    # One class on both sides leaves the correlation undefined; scikit-learn says 0 and warns.
    if len(np.union1d(gold, predicted)) == 1:
        return 0.0
    return float(matthews_corrcoef(gold, predicted))


def _accuracy_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    classes = np.union1d(gold, predicted)
    if not set(classes.tolist()) <= {0, 1}:
        raise ValueError(
            f"metric 'accuracy_f1' got the class ids {classes.tolist()}; it allows 0 and 1 only; "
            "use 'macro_f1' for more classes"
        )
    return (_accuracy(gold, predicted) + _f1("binary")(gold, predicted)) / 2


def _pearson_spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:  # a correlation with a constant is undefined
        return 0.0
    from scipy.stats import pearsonr, spearmanr  # here, because its import takes 0.4 s of every worker

    return float(pearsonr(gold, predicted).statistic + spearmanr(gold, predicted).statistic) / 2


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "macro_f1": _f1("macro"),
    "micro_f1": _f1("micro"),
    "accuracy": _accuracy,
    "matthews": _matthews,
    "accuracy_f1": _accuracy_f1,
    "pearson_spearman": _pearson_spearman,
}
REGRESSION = ("pearson_spearman",)  # of numbers instead of classes
