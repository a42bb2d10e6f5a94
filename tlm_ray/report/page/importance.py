"""Estimate each sweep parameter's importance: its share of the variance of the dev score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlm_ray.report.parameters import MOST_LEVELS, is_number

BINS = 5  # bins with equally many trials, for a sampled parameter
FEWEST = 8  # minimum number of trials for meaningful shares
METHOD = (
    "Share of the variance of the dev score that each parameter explains: one-way analysis of variance, minus "
    "the share expected by chance (ε², Kelley 1935). The rest is due to other parameters, interactions and chance. "
    f"A parameter with more than {MOST_LEVELS} values is divided into {BINS} bins with equally many trials."
)


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The importance of one parameter."""

    parameter: str
    share: float
    """share of the variance, 0 to 1"""
    p: float
    """probability of such a share if the parameter had no effect (p-value)"""


def importances(trials: Sequence[tuple[Sequence[Any], float]], parameters: Sequence[str]) -> list[Importance]:
    """Return each parameter's share, largest first; none for few trials or a parameter with one value.

    trials: the values of the parameters, and the score.
    """
    scores = np.array([score for _, score in trials])
    if len(trials) < FEWEST or not np.ptp(scores):
        return []
    found = [_of(name, [values[i] for values, _ in trials], scores) for i, name in enumerate(parameters)]
    return sorted((each for each in found if each is not None), key=lambda each: -each.share)


def _of(parameter: str, values: Sequence[Any], scores: np.ndarray) -> Importance | None:
    from scipy.stats import f_oneway  # imported here, because it takes 0.4 s

    groups = [scores[part] for part in _parts(values)]
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    if len(groups) < 2 or len(groups) == len(scores):
        return None
    if not within:  # the parameter explains everything
        return Importance(parameter=parameter, share=1.0, p=0.0)
    ratio, p = f_oneway(*groups)
    between, rest = len(groups) - 1, len(scores) - len(groups)
    share = max(0.0, between * (ratio - 1) / (between * ratio + rest))
    return Importance(parameter=parameter, share=float(share), p=float(p))


def _parts(values: Sequence[Any]) -> list[np.ndarray]:
    """Group the scores by value, or by bins of a sampled parameter's range."""
    levels = sorted({str(value) for value in values})
    if len(levels) <= MOST_LEVELS or not all(map(is_number, values)):
        texts = np.array([str(value) for value in values])
        return [np.flatnonzero(texts == level) for level in levels]
    order = np.argsort(np.array(values, float), kind="stable")
    return [part for part in np.array_split(order, BINS) if len(part)]
