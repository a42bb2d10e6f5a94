"""Test which rows of a table differ: confidence intervals and p-values of differences of means, over rows and seeds.

The variance of a difference of two means is that of two crossed factors,

    covariance between seeds, over groups of test rows  +  s² (1/n + 1/n')

where s² is the variance over seeds. Both terms are estimated from pseudo-values, of row groups and of ensemble members.
Few seeds can estimate either as 0, so the sum is at least the variance over test rows of the seeds that there are.
The degrees of freedom of the sum are Satterthwaite's. docs/statistics.md gives the derivation and the coverage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from tlm_ray.corpus.labelled.hub import trained_as
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.report.statistics.jackknife import freedom_of, row_values

LEVEL = 0.05
TINY = 1e-9  # points, below which a spread is rounding
POWER = 0.8  # of the test that `Difference.smallest` is computed for


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """The predictions of one row's runs on one task's test set."""

    row: str
    """the table's row"""
    task: str
    """the task's short name, a column"""
    metric: str | Metric
    gold: np.ndarray
    """(test rows,) class ids or numbers"""
    predicted: np.ndarray
    """(runs, test rows), one run per seed"""
    groups: np.ndarray | None = None
    """(test rows,) group ids from 0; rows of one group, such as one text, are dependent. None: all rows independent"""
    is_drawn: bool = True
    """whether runs depend on a seed; False for a deterministic classifier"""
    members: str = ""
    """the row whose runs these combine, seed by seed or as an ensemble; "" for own runs"""
    without: np.ndarray | None = None
    """leave-one-out predictions of an ensemble, (members, test rows); `predicted` then has one run"""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between the means of two rows, in percentage points."""

    row: str
    other: str
    tasks: tuple[str, ...]
    """one task, or the tasks averaged over"""
    mean: float
    error: float
    """standard error"""
    freedom: float
    """degrees of freedom of the error"""
    counts_seeds: bool = True
    """whether the error includes the variance over seeds, which needs two trainings of a row; else nothing is tested"""
    are_kin: bool = False
    """whether both rows use the same runs"""
    holm: float | None = None
    """p corrected for all differences reported together (`corrected`); None for a single one, or one not tested"""
    among: int = 1
    """divisor of its level in Holm's procedure: the differences not yet rejected"""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of this difference alone."""
        reach = _student().ppf(1 - LEVEL / 2, self.freedom) * self.error if self.error else 0.0
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """The two-sided p-value under equal means.

        Without any variance it is a sign test, with all groups of test rows on the same side.
        """
        if not self.error:
            return 2.0**-self.freedom if self.mean else 1.0
        return float(2 * _student().sf(abs(self.mean) / self.error, self.freedom))

    @property
    def reported_p(self) -> float:
        """The p-value to report: corrected if it is one of several."""
        return self.p if self.holm is None else self.holm

    @property
    def is_shown(self) -> bool:
        """Whether the difference is tested and significant: p < 0.05, corrected if it is one of several."""
        return self.counts_seeds and self.reported_p < LEVEL

    @property
    def smallest(self) -> float:
        """The smallest difference that would be significant with 80 % power."""
        student, level = _student(), LEVEL / self.among
        return float((student.ppf(1 - level / 2, self.freedom) + student.ppf(POWER, self.freedom)) * self.error)


def corrected(found: Sequence[Difference]) -> list[Difference]:
    """Correct the p-values of differences that are reported together (Holm 1979).

    The probability of any false positive is then below 5 %, for any dependence between them. Differences that are not
    tested (`Difference.counts_seeds`) stay as they are.
    """
    tested = sorted((place for place, each in enumerate(found) if each.counts_seeds), key=lambda place: found[place].p)
    worst, holm = 0.0, dict[int, float]()
    for rank, place in enumerate(tested):
        worst = max(worst, min(1.0, (len(tested) - rank) * found[place].p))
        holm[place] = worst
    left = sum(p >= LEVEL for p in holm.values())
    told = list(found)
    for place, p in holm.items():
        told[place] = replace(found[place], holm=p, among=left + (p < LEVEL))
    return told


def compare(predictions: Sequence[Predictions]) -> list[Difference]:
    """Compare all rows of each task, in both directions; rows may lack a task.

    ValueError if rows of a task have different gold labels or groups.
    """
    by_task: dict[str, list[Predictions]] = {}
    for each in predictions:
        by_task.setdefault(each.task, []).append(each)
    return [found for rows in by_task.values() for found in _of_task(rows)]


def over_tasks(found: Sequence[Difference]) -> Difference:
    """Return the mean of one pair's differences over several tasks, which are independent.

    Tasks that differ only in their test set (`trained_as`) count as one. Their trainings are the same, so the error of
    their mean is the mean of theirs, which is its largest possible value.
    """
    trained: dict[str, list[Difference]] = {}
    for each in found:
        trained.setdefault(trained_as(each.tasks[0]), []).append(each)
    count = len(trained)
    errors = [(fmean(each.error for each in same), min(each.freedom for each in same)) for same in trained.values()]
    variance, freedom = _sum([(error**2, freedom) for error, freedom in errors])
    return Difference(
        row=found[0].row,
        other=found[0].other,
        tasks=tuple(task for each in found for task in each.tasks),
        mean=fmean(fmean(each.mean for each in same) for same in trained.values()),
        error=math.sqrt(variance) / count,
        freedom=freedom,
        counts_seeds=all(each.counts_seeds for each in found),
    )


def _of_task(rows: Sequence[Predictions]) -> list[Difference]:
    first = rows[0]
    for each in rows:
        for name, own, others in (("gold labels", each.gold, first.gold), ("groups", each.groups, first.groups)):
            if not np.array_equal(own, others):  # type: ignore[arg-type]  # None is equal to None alone
                raise ValueError(f"row {each.row!r} on {each.task!r}: its {name} are not those of row {first.row!r}")
    found = [_difference(one, other) for one, other in combinations(map(_Runs.scored, rows), 2)]
    return [each for one in found for each in (one, replace(one, row=one.other, other=one.row, mean=0.0 - one.mean))]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """The runs of a row on a task, as scores in percent."""

    of: Predictions
    mean: float
    scores: np.ndarray
    """(seeds,); pseudo-values for an ensemble"""
    by_rows: np.ndarray
    """(runs, groups), pseudo-values of the test set's groups; an ensemble is one run"""

    @classmethod
    def scored(cls, of: Predictions) -> "_Runs":
        scores = np.array([score(of.metric, of.gold, run) for run in of.predicted])
        mean = float(scores.mean())
        if of.without is not None:
            less = np.array([score(of.metric, of.gold, run) for run in of.without])
            scores = len(less) * mean - (len(less) - 1) * less
        by_rows = row_values(of.metric, of.gold, of.predicted, of.groups)
        return cls(of=of, mean=mean, scores=scores, by_rows=by_rows)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variance over seeds."""
        return len(self.scores) - 1 if self.of.is_drawn else 0


def _difference(one: _Runs, other: _Runs) -> Difference:
    are_kin = (one.of.members or one.of.row) == (other.of.members or other.of.row)
    over_rows, (over_seeds, freedom, counts_seeds) = (_paired if are_kin else _apart)(one, other)
    by_rows = one.by_rows.mean(axis=0) - other.by_rows.mean(axis=0)
    rows_freedom = freedom_of(by_rows)
    at_least = _in_common(by_rows[None]) - over_seeds
    variance, effective = _sum([(max(0.0, over_rows, at_least), rows_freedom), (over_seeds, freedom)])
    varies = math.sqrt(variance) > TINY
    return Difference(
        row=one.of.row,
        other=other.of.row,
        tasks=(one.of.task,),
        mean=one.mean - other.mean,
        error=math.sqrt(variance) if varies else 0.0,
        freedom=effective if varies else rows_freedom,
        counts_seeds=counts_seeds or not (one.of.is_drawn or other.of.is_drawn),
        are_kin=are_kin,
    )


OverSeeds = tuple[float, float, bool]  # the variance over seeds, its degrees of freedom, and whether it is complete


def _paired(one: _Runs, other: _Runs) -> tuple[float, OverSeeds]:
    """Return the variances over test rows and seeds, for two rows that share their runs.

    The pseudo-values of a two-member ensemble minus its runs are equal, so the variance over seeds is unknown. Two
    differences may also be equal by chance; three hardly are.
    """
    scores = one.scores - other.scores
    varies = len(scores) > 1 and float(np.ptp(scores)) > TINY
    known = varies or len(scores) > 2
    over_seeds = (float(scores.var(ddof=1)) / len(scores), one.freedom, True) if known else (0.0, 0, False)
    if len(one.by_rows) == len(other.by_rows):
        return _in_common(one.by_rows - other.by_rows), over_seeds
    means = one.by_rows.mean(axis=0, keepdims=True) - other.by_rows.mean(axis=0, keepdims=True)
    return _in_common(means), over_seeds


def _apart(one: _Runs, other: _Runs) -> tuple[float, OverSeeds]:
    """Return the variances over test rows and seeds, for two rows with independent runs."""
    between = _covariance(np.concatenate([one.by_rows, other.by_rows]))[: len(one.by_rows), len(one.by_rows) :]
    over_rows = _in_common(one.by_rows) + _in_common(other.by_rows) - 2 * float(between.mean())
    seen = [each for each in (one, other) if each.freedom]
    if any(each.of.without is not None for each in (one, other)):  # an ensemble varies less than a single run
        variance, freedom = _sum([(float(each.scores.var(ddof=1)) / len(each.scores), each.freedom) for each in seen])
        return over_rows, (variance, freedom, all(each.freedom or not each.of.is_drawn for each in (one, other)))
    freedom = sum(each.freedom for each in seen)
    squares = sum(float(each.scores.var()) * len(each.scores) for each in seen)
    share = sum(1 / len(each.scores) for each in (one, other) if each.of.is_drawn)
    return over_rows, (share * squares / freedom if freedom else 0.0, freedom, freedom > 0)


def _in_common(by_rows: np.ndarray) -> float:
    """Return the variance over test rows that is common to different seeds; for a single run, its own."""
    covariance, count = _covariance(by_rows), len(by_rows)
    return float(covariance[0, 0] if count == 1 else (covariance.sum() - covariance.trace()) / (count * (count - 1)))


def _covariance(by_rows: np.ndarray) -> np.ndarray:
    """Return the covariance of runs' scores over test sets, (runs, runs), given pseudo-values; 0 for a single group."""
    groups = by_rows.shape[1]
    return np.atleast_2d(np.cov(by_rows)) / groups if groups > 1 else np.zeros((len(by_rows), len(by_rows)))


def _sum(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Add variances with their degrees of freedom (Satterthwaite 1946); if all are 0, the degrees are summed."""
    total = sum(variance for variance, _ in parts)
    spread = sum(variance**2 / freedom for variance, freedom in parts if variance)
    return total, total**2 / spread if spread else sum(freedom for _, freedom in parts)


def _student() -> Any:
    from scipy.stats import t  # here, because its import takes 0.4 s

    return t
