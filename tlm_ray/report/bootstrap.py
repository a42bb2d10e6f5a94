"""A test set whose rows are drawn anew: how far the scores of some runs, and their differences, would move."""

import numpy as np

from tlm_ray.corpus.scores import Metric, metric_named

DRAWS = 4_000  # a standard error is then within 1.1 % of what endless draws would give
CHUNK = 2**23  # numbers of an array at a time: three of 64 bits and one of 32, 235 MB


def redrawn_scores(
    metric: str | Metric, gold: np.ndarray, predicted: np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Score runs on test sets drawn with replacement from one, all runs on the same draws (Efron 1979).

    gold: (rows,); predicted: (runs, rows). Returns percentages, float64 (runs, draws). ValueError for a metric of your
    own that has no number for a test set drawn anew, in which a class may be missing.
    """
    metric = metric_named(metric)
    generator = np.random.Generator(np.random.Philox(seed))
    rows, classes = len(gold), 0 if metric.is_regression else _classes(gold, predicted)
    chunk = max(1, CHUNK // max(rows, classes**2))
    parts = []
    for start in range(0, draws, chunk):
        chosen = generator.integers(0, rows, (min(chunk, draws - start), rows))
        score = _by_rows if metric.of_confusions is None else _by_confusions
        parts.append(score(metric, gold, predicted, chosen))
    scores = 100.0 * np.concatenate(parts, axis=1)
    if not np.isfinite(scores).all():
        raise ValueError(
            f"metric {metric.name!r}: has no number for a test set drawn anew; have compute return one, such as 0, "
            "where a class is missing"
        )
    return scores


def _classes(gold: np.ndarray, predicted: np.ndarray) -> int:
    return 1 + int(max(1, gold.max(), predicted.max()))


def _by_rows(metric: Metric, gold: np.ndarray, predicted: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    kind = np.float64 if metric.is_regression else np.int64
    gold, predicted = gold.astype(kind), predicted.astype(kind)
    return np.array([[metric.compute(gold[draw], run[draw]) for draw in chosen] for run in predicted])


def _by_confusions(metric: Metric, gold: np.ndarray, predicted: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    assert metric.of_confusions is not None
    classes, (draws, rows) = _classes(gold, predicted), chosen.shape
    of_draw = (chosen + rows * np.arange(draws)[:, None]).ravel()
    weights = np.bincount(of_draw, minlength=draws * rows).reshape(draws, rows).astype(np.float32)
    scores = []
    for run in predicted:
        cells, cell = np.unique(gold * classes + run, return_inverse=True)
        member = np.zeros((rows, len(cells)), np.float32)
        member[np.arange(rows), cell] = 1
        counts = np.zeros((draws, classes**2))
        counts[:, cells] = weights @ member  # whole numbers below 2**24, exact in float32
        scores.append(metric.of_confusions(counts.reshape(draws, classes, classes)))
    return np.array(scores)
