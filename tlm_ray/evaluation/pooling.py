"""Two voices as one: a weighted geometric mean of probabilities (Genest and Zidek 1986), weighted on labelled rows."""

import numpy as np

SHARES = np.linspace(0, 1, 21)  # that are tried
FLOOR = 1e-6  # of a probability: a class that one voice thinks impossible is not out


def pooled(own: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """Return both voices' probabilities, or numbers, as one's, (rows, classes); a number is one column.

    share: of the first voice, 0 to 1. Numbers are averaged arithmetically.
    """
    if own.shape[1] == 1:
        return share * own + (1 - share) * other
    odds = np.maximum(own, FLOOR) ** share * np.maximum(other, FLOOR) ** (1 - share)
    return odds / odds.sum(axis=1, keepdims=True)


def best_share(gold: np.ndarray, own: np.ndarray, other: np.ndarray) -> float:
    """Return the first voice's share by which both together give labelled rows the lowest cross-entropy.

    gold: (rows,) class ids, or numbers, for which it is the squared error.
    """
    return float(min(SHARES, key=lambda share: _loss(gold, pooled(own, other, share))))


def _loss(gold: np.ndarray, said: np.ndarray) -> float:
    if said.shape[1] == 1:
        return float(((said[:, 0] - gold) ** 2).mean())
    return float(-np.log(said[np.arange(len(gold)), gold]).mean())
