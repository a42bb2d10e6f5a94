"""Jackknife the scores of runs over groups of test rows (docs/statistics.md)."""

import numpy as np

from tlm_ray.evaluation.scores import Metric, metric_named

CHUNK = 2**23  # numbers of an array at a time: 67 MB
BLOCKS = 4_000  # maximum of groups if each costs a call of the metric; their variance is then known to 2.2 %


def row_values(
    metric: str | Metric, gold: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """Score runs without each group of rows and return the pseudo-values of the groups (Tukey 1958), in percent.

    gold: (rows,); predicted: (runs, rows); groups: (rows,) ids from 0 of the rows that belong together, None if each
    row is independent. Returns float64 (runs, groups), zeros for a single group. The covariance of pseudo-values,
    divided by the number of groups, is that of the runs' scores over test sets. ValueError for a custom metric that is
    undefined for a test set without some class.
    """
    metric = metric_named(metric)
    groups = np.arange(len(gold)) if groups is None else groups
    if metric.of_confusions is None:
        groups = _joined(groups)
    count = int(groups.max()) + 1
    if count == 1:
        return np.zeros((len(predicted), 1))
    scored = _by_calls if metric.of_confusions is None else _by_confusions
    values = []
    for run in predicted:
        whole, without = scored(metric, gold, run, groups)
        values.append(100.0 * (count * whole - (count - 1) * without))
    if not np.isfinite(values).all():
        raise ValueError(
            f"metric {metric.name!r}: has no number for a test set without some of its rows; have compute return one, "
            "such as 0, where a class is missing"
        )
    return np.array(values)


def interval_over_rows(
    metric: str | Metric, gold: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of one run's score over test sets, in percent.

    None where the rows do not say how far it varies: a single group, or a run without an error.

    gold, predicted: (rows,); groups as in `row_values`. It is Student's t, within the metric's range. Its centre is the
    score corrected for the bias of few rows, so the score itself may lie outside.
    """
    (values,) = row_values(metric, gold, predicted[None], groups)
    if len(values) < 2:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5
    if not error:
        return None
    from scipy.stats import t  # imported here, because it takes 0.4 s

    half = float(t.ppf(0.975, freedom_of(values))) * error
    return max(metric_named(metric).lowest, mean - half), min(100.0, mean + half)


def freedom_of(values: np.ndarray) -> float:
    """Return the degrees of freedom of the variance of a mean of numbers, (groups,), by their fourth moment.

    For n normal numbers it is n - 1. For a few large numbers among many small ones, as with a rare class, it is about
    twice the number of large ones.
    """
    squares = (values - values.mean()) ** 2
    spread, most = float((squares**2).sum() - squares.sum() ** 2 / len(values)), len(values) - 1.0
    return min(most, 2 * float(squares.sum()) ** 2 / spread) if spread > 0 else most


def _joined(groups: np.ndarray) -> np.ndarray:
    """Merge groups at random if there are too many to leave each out."""
    count = int(groups.max()) + 1
    block = np.random.Generator(np.random.Philox(0)).permutation(count) % BLOCKS
    return groups if count <= BLOCKS else block[groups]


def _by_calls(metric: Metric, gold: np.ndarray, run: np.ndarray, groups: np.ndarray) -> tuple[float, np.ndarray]:
    kind = np.float64 if metric.is_regression else np.int64
    gold, run = gold.astype(kind), run.astype(kind)
    kept = (groups != group for group in range(int(groups.max()) + 1))
    return metric.compute(gold, run), np.array([metric.compute(gold[rows], run[rows]) for rows in kept])


def _by_confusions(metric: Metric, gold: np.ndarray, run: np.ndarray, groups: np.ndarray) -> tuple[float, np.ndarray]:
    assert metric.of_confusions is not None
    classes, order = 1 + int(max(1, gold.max(), run.max())), np.argsort(groups, kind="stable")
    cells, ordered, count = (gold * classes + run)[order], groups[order], int(groups.max()) + 1
    shape, step = (-1, classes, classes), max(1, CHUNK // classes**2)
    total = np.bincount(cells, minlength=classes**2).astype(np.float64)
    without = []
    for start in range(0, count, step):
        width, rows = min(step, count - start), slice(*np.searchsorted(ordered, [start, start + step]))
        own = np.bincount((ordered[rows] - start) * classes**2 + cells[rows], minlength=width * classes**2)
        without.append(metric.of_confusions((total - own.reshape(width, -1)).reshape(shape)))
    return float(metric.of_confusions(total.reshape(shape))[0]), np.concatenate(without)
