"""How much each parameter of a sweep decides: its share of the variance of the dev score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlm_ray.report.parameters import MOST_LEVELS, is_number

BINS = 5  # of as many trials each, for one that was drawn
FEWEST = 8  # trials, below which shares say nothing
METHOD = (
    "Share of the variance of the dev score that lies between a parameter's values: one-way analysis of variance, less "
    "what chance alone would give (ε², Kelley 1935). What is left is of other parameters, of what they do together, "
    f"and of chance. A parameter with more than {MOST_LEVELS} values is cut into {BINS} parts of as many trials each."
)


@dataclass(frozen=True, kw_only=True)
class Importance:
    """How much one parameter decides."""

    parameter: str
    share: float
    """of the variance, 0 to 1"""
    p: float
    """the chance of such a share if the parameter decided nothing"""


def importances(trials: Sequence[tuple[Sequence[Any], float]], parameters: Sequence[str]) -> list[Importance]:
    """Return each parameter's share, the largest first; none for few trials, and none of a parameter with one value.

    trials: the values of the parameters, and the score.
    """
    scores = np.array([score for _, score in trials])
    if len(trials) < FEWEST or not np.ptp(scores):
        return []
    found = [_of(name, [values[i] for values, _ in trials], scores) for i, name in enumerate(parameters)]
    return sorted((each for each in found if each is not None), key=lambda each: -each.share)


def _of(parameter: str, values: Sequence[Any], scores: np.ndarray) -> Importance | None:
    from scipy.stats import f_oneway  # here, because its import takes 0.4 s

    groups = [scores[part] for part in _parts(values)]
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    if len(groups) < 2 or len(groups) == len(scores):
        return None
    if not within:  # the parameter decides all
        return Importance(parameter=parameter, share=1.0, p=0.0)
    ratio, p = f_oneway(*groups)
    between, rest = len(groups) - 1, len(scores) - len(groups)
    share = max(0.0, between * (ratio - 1) / (between * ratio + rest))
    return Importance(parameter=parameter, share=float(share), p=float(p))


def _parts(values: Sequence[Any]) -> list[np.ndarray]:
    """Return the trials of each value, or of each part of a drawn parameter's range."""
    levels = sorted({str(value) for value in values})
    if len(levels) <= MOST_LEVELS or not all(map(is_number, values)):
        texts = np.array([str(value) for value in values])
        return [np.flatnonzero(texts == level) for level in levels]
    order = np.argsort(np.array(values, float), kind="stable")
    return [part for part in np.array_split(order, BINS) if len(part)]
