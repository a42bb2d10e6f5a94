"""Pool two models' predictions by a weighted geometric mean (Genest and Zidek 1986); labelled rows set the weights."""

import numpy as np

SHARES = np.linspace(0, 1, 21)  # weights to try
FLOOR = 1e-6  # least probability, so that one model alone cannot exclude a class


def pooled(own: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """Return the pooled probabilities of two models, (rows, classes), or the weighted mean of numbers, (rows, 1).

    share: weight of the first model, 0 to 1.
    """
    if own.shape[1] == 1:
        return share * own + (1 - share) * other
    odds = np.maximum(own, FLOOR) ** share * np.maximum(other, FLOOR) ** (1 - share)
    return odds / odds.sum(axis=1, keepdims=True)


def best_share(gold: np.ndarray, own: np.ndarray, other: np.ndarray) -> float:
    """Return the first model's weight with the lowest cross-entropy on labelled rows, or squared error for numbers.

    gold: (rows,) class ids or numbers.
    """
    return float(min(SHARES, key=lambda share: _loss(gold, pooled(own, other, share))))


def _loss(gold: np.ndarray, said: np.ndarray) -> float:
    if said.shape[1] == 1:
        return float(((said[:, 0] - gold) ** 2).mean())
    return float(-np.log(said[np.arange(len(gold)), gold]).mean())
