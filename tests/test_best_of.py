"""How far rows are above the best of some baselines, which may be another on each task."""

import re
from dataclasses import replace

import pytest
from report_cells import make_cells, make_differences, of

from tlm_ray.report.statistics.differences import over_tasks
from tlm_ray.report.tables.best_of import best_of_notes

ROWS = {"words": 0.7, "windows": 0.75, "small": 0.8, "large": 0.803}
BEST = {"reviews": "windows", "news": "words", "mail": "words"}


def table(tasks=tuple(BEST), best=BEST, shares=ROWS):
    """A table in which these rows are best on each task's dev set; shares: how often each row is right."""
    cells = make_cells(tasks, rows=list(shares))
    dev = {cell: 80.0 if best.get(cell.task) == cell.row else 90.0 if cell.row == "large" else 70.0 for cell in cells}
    cells = [replace(cell, dev_scores=(dev[cell],) * 3) for cell in cells]
    return of(cells, make_differences(tasks, shares))


def told(results):
    return best_of_notes(results, ["words", "windows"], name="the better one")


def differences(results, row):
    return [each for each in results.differences if each.row == row and BEST[each.tasks[0]] == each.other]


def test_each_row_is_compared_with_the_best_of_each_task():
    results = table()
    small, large = told(results)
    means = {row: sum(each.mean for each in differences(results, row)) / 3 for row in ("small", "large")}
    assert small.startswith(f"Mean of 3 tasks: small {means['small']:+.1f} (")
    assert large.startswith(f"Mean of 3 tasks: large {means['large']:+.1f} (")
    assert small.endswith(" from the better one, p < 0.001 among 2 differences: shown")
    both = told(table(best=dict.fromkeys(BEST, "windows")))
    assert both[0] != small, "the best ones decide"


def test_the_interval_is_that_of_the_mean():
    results = table()
    error = sum(each.error**2 for each in differences(results, "small")) ** 0.5 / 3
    low, high = map(float, told(results)[0].split("(")[1].split(")")[0].split(" to "))
    assert (high - low) / 2 == pytest.approx(2 * error, rel=0.15)


@pytest.mark.parametrize(
    ("small", "large", "verdicts"),
    [(0.66, 0.715, ["shown to be below", "shown"]), (0.681, 0.71, ["not shown", "not shown"])],
)
def test_p_is_corrected_and_decides_what_is_shown(small, large, verdicts):
    results = table(shares={"words": 0.7, "windows": 0.7, "small": small, "large": large})
    low, high = (over_tasks(differences(results, row)).p for row in ("small", "large"))
    expected = [2 * low, max(2 * low, high)]  # Holm
    assert low < 0.05 and "small -" in told(results)[0]
    for sentence, corrected, verdict in zip(told(results), expected, verdicts, strict=True):
        sign, p = re.search(r"p ([<=]) ([\d.]+) among 2 differences: ", sentence).groups()
        assert float(p) == pytest.approx(corrected, abs=0.0006) if sign == "=" else corrected < 0.001
        assert sentence.endswith(f": {verdict}")


def test_what_cannot_be_compared_is_left_out():
    assert told(table(tasks=("reviews",))) == [], "the table itself says it"
    results = table()
    lacking = [cell for cell in results.cells if (cell.row, cell.task) != ("small", "news")]
    fewer = [each for each in results.differences if not ("small" in (each.row, each.other) and "news" in each.tasks)]
    (large,) = told(of(lacking, fewer))
    assert large.startswith("Mean of 3 tasks: large ") and "among" not in large
    without = [cell for cell in results.cells if cell.task != "news" or cell.row not in ("words", "windows")]
    assert told(of(without, results.differences)) == [], "a task has no baseline"
