"""Compute metrics: percentages of agreement between predicted and gold classes or numbers, as in the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlm_ray.evaluation import confusions
from tlm_ray.identity import LATER

ROUNDING = 1e-6  # by so much a correlation may exceed 1 before it is cut to 1


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A way to score predictions: one of METRICS or your own, accepted wherever a metric's name is."""

    name: str
    """name in files and tables"""
    compute: Callable[[np.ndarray, np.ndarray], float]
    """function of gold and predicted values, both (rows,), int64 class ids or float64 numbers; 1 is perfect"""
    lowest: float = 0.0
    """the worst possible score, in percent: -100 for a correlation"""
    is_regression: bool = False
    """labels are numbers instead of classes"""
    of_confusions: Callable[[np.ndarray], np.ndarray] | None = None
    """the same for confusion matrices, (..., classes, classes) to (...), see tlm_ray.evaluation.confusions. Without it
    an interval calls `compute` once per test row, which is slow"""
    version: int = field(default=1, metadata=LATER)
    """version of a metric of your own; raise it when its code gives other scores, so that models are scored again"""


def metric_named(metric: str | Metric) -> Metric:
    """Return the metric of a name, or a metric of your own unchanged.

    ValueError lists the allowed names. It is also raised if a metric of your own has no name, or the name of another.
    """
    if isinstance(metric, str):
        if metric not in METRICS:
            raise ValueError(f"metric {metric!r}: allowed are {', '.join(METRICS)}; or pass a Metric of your own")
        return METRICS[metric]
    if not metric.name or METRICS.get(metric.name, metric) != metric:
        raise ValueError(
            f"metric {metric.name!r}: a Metric of your own needs a name, and not one of {', '.join(METRICS)}; "
            "give it another name"
        )
    return metric


def score(metric: str | Metric, gold: Sequence[float] | np.ndarray, predicted: Sequence[float] | np.ndarray) -> float:
    """Return the agreement of predicted and gold values in percent, from the metric's `lowest` to 100.

    gold, predicted: (rows,) class ids, or finite numbers for a regression. ValueError for an unknown metric, values
    that it cannot compare, or a result out of range.
    """
    metric = metric_named(metric)
    checked = _numbers if metric.is_regression else _class_ids
    gold_values, predicted_values = checked(metric.name, "gold", gold), checked(metric.name, "predicted", predicted)
    if len(gold_values) != len(predicted_values):
        raise ValueError(
            f"metric {metric.name!r} got {len(gold_values)} gold and {len(predicted_values)} predicted "
            "values; give one prediction for each gold one"
        )
    share = float(metric.compute(gold_values, predicted_values))
    if not metric.lowest / 100 - ROUNDING <= share <= 1 + ROUNDING:
        raise ValueError(
            f"metric {metric.name!r} computed {share}; compute must return a share of {metric.lowest / 100:g} to 1"
        )
    return min(100.0, max(metric.lowest, 100.0 * share))


def _numbers(metric: str, name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.size < 2 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError(
            f"metric {metric!r} got {name} of shape {array.shape} and type {array.dtype}; "
            "give a vector of two or more finite numbers"
        )
    return array.astype(np.float64)


def _class_ids(metric: str, name: str, ids: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return ids as an integer vector; floats are refused, because a cast would change them."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise ValueError(
            f"metric {metric!r} got {name} of shape {array.shape} and type {array.dtype}; "
            "give a non-empty vector of integer class ids"
        )
    return array.astype(np.int64)


def _scikit() -> Any:
    from sklearn import metrics  # here, because its import takes 1.1 s and most processes score nothing

    return metrics


def _macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean F1 of classes in gold or predicted; one never predicted counts 0, as in the released code."""
    return float(_scikit().f1_score(gold, predicted, average="macro", zero_division=0))


def _micro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return F1 over all classes together, which equals accuracy if every row has one class."""
    return float(_scikit().f1_score(gold, predicted, average="micro", zero_division=0))


def _accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(_scikit().accuracy_score(gold, predicted))


def _matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    # With one class on both sides the correlation is undefined; scikit-learn returns 0 with a warning.
    if len(np.union1d(gold, predicted)) == 1:
        return 0.0
    return float(_scikit().matthews_corrcoef(gold, predicted))


def _f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 of class 1."""
    return float(_scikit().f1_score(gold, predicted, average="binary", zero_division=0))


def _accuracy_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of accuracy and the F1 of class 1 (GLUE's MRPC and QQP)."""
    classes = np.union1d(gold, predicted)
    if not set(classes.tolist()) <= {0, 1}:
        raise ValueError(
            f"metric 'accuracy_f1' got the class ids {classes.tolist()}; it allows 0 and 1 only; "
            "use 'macro_f1' for more classes"
        )
    return (_accuracy(gold, predicted) + _f1(gold, predicted)) / 2


def _correlation(name: str, gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return a correlation by its name in SciPy; 0 if all numbers of one side are equal."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:  # a correlation with a constant is undefined
        return 0.0
    from scipy import stats  # here, because its import takes 0.4 s of every worker

    return float(getattr(stats, name)(gold, predicted).statistic)


def _pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation("pearsonr", gold, predicted)


def _spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation("spearmanr", gold, predicted)


def _pearson_spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of both correlations (GLUE's STS-B)."""
    return (_pearson(gold, predicted) + _spearman(gold, predicted)) / 2


ACCURACY = Metric(name="accuracy", compute=_accuracy, of_confusions=confusions.accuracy)
OF_PAIRS = {  # metrics that are the mean of two others
    "accuracy_f1": (ACCURACY, Metric(name="f1", compute=_f1)),
    "pearson_spearman": tuple(
        Metric(name=name, compute=compute, lowest=-100.0, is_regression=True)
        for name, compute in (("pearson", _pearson), ("spearman", _spearman))
    ),
}
# module functions instead of closures, so that a metric from another process equals the one here
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="macro_f1", compute=_macro_f1, of_confusions=confusions.macro_f1),
        Metric(name="micro_f1", compute=_micro_f1, of_confusions=confusions.accuracy),
        ACCURACY,
        Metric(name="matthews", compute=_matthews, lowest=-100.0, of_confusions=confusions.matthews),
        Metric(name="accuracy_f1", compute=_accuracy_f1, of_confusions=confusions.accuracy_f1),
        Metric(name="pearson_spearman", compute=_pearson_spearman, lowest=-100.0, is_regression=True),
    )
}
