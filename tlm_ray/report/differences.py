"""Which rows of a table differ: intervals and p of the differences of their means, over test rows and seeds.

A row's score varies with the test rows that happened to be drawn, which all rows share, and with the seeds of its own
trainings. The variance of a difference of two means is that of two crossed factors,

    what seeds have in common, over test rows  +  s² (1/n + 1/n')

The first is the mean bootstrap covariance of different seeds, so that what seeds and test rows do together is counted
once, in the second. (Of a row with one run it is that run's variance, which has it too.) s² is the variance over seeds,
of both rows together, with the degrees of freedom that they have; those of the sum are Satterthwaite's (1946). An
interval by Student's t then covers a difference as often as it says with three seeds, where drawing seeds with
replacement would take a third of their variance for nothing.

An ensemble is one run of n seeds. How it varies with them is Tukey's jackknife (1958): in the place of scores stand the
pseudo-values n E - (n - 1) E without seed i. Rows that are made of the same runs are paired seed by seed. What seeds
and test rows do together is then in both parts, so an ensemble's interval is rather too wide than too narrow.

All of it is given the dev set: what another one would have chosen (settings, best weights, a share beside TF-IDF) is in
no interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from tlm_ray.corpus.scores import Metric, score
from tlm_ray.report.bootstrap import DRAWS, redrawn_scores

LEVEL = 0.05
TINY = 1e-9  # points, below which a spread is rounding
POWER = 0.8  # with which `Difference.smallest` would have been shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What the runs of one row predicted of one task's test set."""

    row: str
    """the table's row"""
    task: str
    """the task's short name, a column"""
    metric: str | Metric
    gold: np.ndarray
    """(test rows,) class ids or numbers"""
    predicted: np.ndarray
    """(runs, test rows), a run per seed"""
    is_drawn: bool = True
    """runs depend on a seed; False for a classifier that always comes out alike"""
    members: str = ""
    """the row whose runs these are made of, seed by seed or all in one; "" where they are nobody's"""
    without: np.ndarray | None = None
    """of an ensemble, (members, test rows): what it predicts without each of them; `predicted` then has one run"""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the mean of one row lies above that of another, in points."""

    row: str
    other: str
    tasks: tuple[str, ...]
    """one, or those that it is the mean of"""
    mean: float
    error: float
    """standard error"""
    freedom: float
    """degrees of freedom of the error"""
    counts_seeds: bool = True
    """whether the error has the spread over seeds; not where neither row has two trainings to see it by"""
    are_kin: bool = False
    """whether both rows are made of the same runs"""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        reach = _student().ppf(1 - LEVEL / 2, self.freedom) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """Chance of a mean this far from 0, to either side, if the rows did not differ; 1 where nothing varies."""
        if not self.error:
            return 1.0
        return float(2 * _student().sf(abs(self.mean) / self.error, self.freedom))

    @property
    def is_shown(self) -> bool:
        """Whether the rows differ with p < 0.05."""
        return self.p < LEVEL

    @property
    def smallest(self) -> float:
        """The difference that such numbers would have shown four times in five."""
        student = _student()
        return float((student.ppf(1 - LEVEL / 2, self.freedom) + student.ppf(POWER, self.freedom)) * self.error)


def compare(predictions: Sequence[Predictions], *, draws: int = DRAWS) -> list[Difference]:
    """Compare all rows of each task, in both directions, by so many draws of its test rows.

    ValueError if two rows of a task have other gold labels.
    """
    by_task: dict[str, list[Predictions]] = {}
    for each in predictions:
        by_task.setdefault(each.task, []).append(each)
    return [found for rows in by_task.values() for found in _of_task(rows, draws)]


def over_tasks(found: Sequence[Difference]) -> Difference:
    """Return the mean of one pair's differences on several tasks, whose test sets and trainings are independent."""
    count, parts = len(found), [(each.error**2, each.freedom) for each in found]
    variance, freedom = _sum(parts)
    return Difference(
        row=found[0].row,
        other=found[0].other,
        tasks=tuple(task for each in found for task in each.tasks),
        mean=sum(each.mean for each in found) / count,
        error=math.sqrt(variance) / count,
        freedom=freedom,
        counts_seeds=all(each.counts_seeds for each in found),
    )


def _of_task(rows: Sequence[Predictions], draws: int) -> list[Difference]:
    gold = rows[0].gold
    for each in rows:
        if not np.array_equal(each.gold, gold):
            raise ValueError(f"row {each.row!r} on {each.task!r}: its gold labels are not those of row {rows[0].row!r}")
    redrawn = redrawn_scores(rows[0].metric, gold, np.concatenate([each.predicted for each in rows]), draws=draws)
    parts = np.split(redrawn, np.cumsum([len(each.predicted) for each in rows])[:-1])
    runs = [_Runs.scored(*each) for each in zip(rows, parts, strict=True)]
    return [_difference(one, other) for one, other in permutations(runs, 2)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """The runs of a row on a task, as scores in percent."""

    of: Predictions
    mean: float
    scores: np.ndarray
    """(seeds,), of an ensemble its pseudo-values"""
    redrawn: np.ndarray
    """(runs, draws), on test sets drawn anew; an ensemble is one run"""

    @classmethod
    def scored(cls, of: Predictions, redrawn: np.ndarray) -> "_Runs":
        scores = np.array([score(of.metric, of.gold, run) for run in of.predicted])
        mean = float(scores.mean())
        if of.without is not None:
            less = np.array([score(of.metric, of.gold, run) for run in of.without])
            scores = len(less) * mean - (len(less) - 1) * less
        return cls(of=of, mean=mean, scores=scores, redrawn=redrawn)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variance over seeds."""
        return len(self.scores) - 1 if self.of.is_drawn else 0


def _difference(one: _Runs, other: _Runs) -> Difference:
    are_kin = (one.of.members or one.of.row) == (other.of.members or other.of.row)
    over_rows, (over_seeds, freedom, counts_seeds) = (_paired if are_kin else _apart)(one, other)
    variance, effective = _sum([(max(0.0, over_rows), len(one.of.gold) - 1), (over_seeds, freedom)])
    return Difference(
        row=one.of.row,
        other=other.of.row,
        tasks=(one.of.task,),
        mean=one.mean - other.mean,
        error=math.sqrt(variance),
        freedom=effective,
        counts_seeds=counts_seeds or not (one.of.is_drawn or other.of.is_drawn),
        are_kin=are_kin,
    )


OverSeeds = tuple[float, float, bool]  # the variance over seeds, its degrees of freedom, and whether it is all that is


def _paired(one: _Runs, other: _Runs) -> tuple[float, OverSeeds]:
    """Return the variances over test rows and seeds of rows of the same runs.

    An ensemble of two less its own runs is the same pseudo-value twice: nothing is seen of the spread over seeds.
    """
    scores = one.scores - other.scores
    varies = len(scores) > 1 and float(np.ptp(scores)) > TINY
    over_seeds = (float(scores.var(ddof=1)) / len(scores), one.freedom, True) if varies else (0.0, 0, False)
    if len(one.redrawn) == len(other.redrawn):
        return _in_common(one.redrawn - other.redrawn), over_seeds
    return float((one.redrawn.mean(axis=0) - other.redrawn.mean(axis=0)).var(ddof=1)), over_seeds


def _apart(one: _Runs, other: _Runs) -> tuple[float, OverSeeds]:
    """Return the variances over test rows and seeds of rows whose runs have nothing to do with each other."""
    rows = np.cov(one.redrawn, other.redrawn)[: len(one.redrawn), len(one.redrawn) :]
    over_rows = _in_common(one.redrawn) + _in_common(other.redrawn) - 2 * float(rows.mean())
    seen = [each for each in (one, other) if each.freedom]
    if any(each.of.without is not None for each in (one, other)):  # which vary less than single runs
        variance, freedom = _sum([(float(each.scores.var(ddof=1)) / len(each.scores), each.freedom) for each in seen])
        return over_rows, (variance, freedom, all(each.freedom or not each.of.is_drawn for each in (one, other)))
    freedom = sum(each.freedom for each in seen)
    squares = sum(float(each.scores.var()) * len(each.scores) for each in seen)
    share = sum(1 / len(each.scores) for each in (one, other) if each.of.is_drawn)
    return over_rows, (share * squares / freedom if freedom else 0.0, freedom, freedom > 0)


def _in_common(redrawn: np.ndarray) -> float:
    """Return what different seeds have in common, over test rows; of one run, its variance."""
    covariance, count = np.atleast_2d(np.cov(redrawn)), len(redrawn)
    return float(covariance[0, 0] if count == 1 else (covariance.sum() - covariance.trace()) / (count * (count - 1)))


def _sum(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Add variances with their degrees of freedom (Satterthwaite 1946)."""
    total = sum(variance for variance, _ in parts)
    spread = sum(variance**2 / freedom for variance, freedom in parts if variance)
    return total, total**2 / spread if spread else math.inf


def _student() -> Any:
    from scipy.stats import t  # here, because its import takes 0.4 s

    return t
