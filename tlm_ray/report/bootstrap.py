"""A test set whose rows are drawn anew: how far the scores of some runs, and their differences, would move."""

import numpy as np

from tlm_ray.corpus.scores import Metric, metric_named

DRAWS = 4_000  # a standard error is then within 1.1 % of what endless draws would give
CHUNK = 2**25  # numbers of a chunk's weights: 134 MB


def redrawn_scores(
    metric: str | Metric, gold: np.ndarray, predicted: np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Score runs on test sets drawn with replacement from one, all runs on the same draws (Efron 1979).

    gold: (rows,); predicted: (runs, rows). Returns percentages, float64 (runs, draws).
    """
    metric = metric_named(metric)
    generator = np.random.Generator(np.random.Philox(seed))
    rows = len(gold)
    chunk = max(1, CHUNK // rows)
    parts = []
    for start in range(0, draws, chunk):
        chosen = generator.integers(0, rows, (min(chunk, draws - start), rows))
        score = _by_rows if metric.of_confusions is None else _by_confusions
        parts.append(score(metric, gold, predicted, chosen))
    return 100.0 * np.concatenate(parts, axis=1)


def _by_rows(metric: Metric, gold: np.ndarray, predicted: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.array([[metric.compute(gold[draw], run[draw]) for draw in chosen] for run in predicted])


def _by_confusions(metric: Metric, gold: np.ndarray, predicted: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    assert metric.of_confusions is not None
    classes, (draws, rows) = 1 + int(max(1, gold.max(), predicted.max())), chosen.shape
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
