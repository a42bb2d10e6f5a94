"""The first screen of a report: the sentences of the terminal, and no difference that is stated twice."""

from dataclasses import replace

import pytest
from page_reading import Page
from report_cells import make_cells, make_differences, of

from tlm_ray.report.page import experiment_page
from tlm_ray.report.tables.sentences import standing, stated, summary

SHARES = {"linear": 0.8, "task data only": 0.5, "TLM, random text": 0.6, "TLM, BM25 text": 0.9}


def said_of(page, found):
    """Return how often a page has an interval of either sign, in a sentence or in a table."""
    low, high = found.interval
    both = [(low, high), (-high, -low)]
    shapes = [shape for one, other in both for shape in (f"{one:+.1f} to {other:+.1f}", f"({one:.1f} to {other:.1f})")]
    return sum(map(page.count, shapes))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("tasks", [["sciie"], ["sciie", "chemprot"]])
def test_the_first_screen_answers_and_no_difference_is_stated_twice(tasks, reverse):
    ours, low, plain = "TLM, BM25 text", "task data only", "linear"
    cells = [replace(c, flops=0.0) if c.row == plain else c for c in make_cells(tasks, rows=list(SHARES))]
    expected = [(ours, low), ("TLM, random text", low), *([("TLM, random text", ours)] if reverse else [])]
    results = of(cells, make_differences(tasks, SHARES), against=ours, expected=expected)
    text = experiment_page("t", results)
    page, told = Page(text), [*standing(results), *summary(results)]
    assert (
        page.sections[0] == "answers"
        and page.text("p")[1 : 1 + len(told)] == told
        and any("linear" in each for each in told)
    )
    assert stated(results) == [(ours, plain), *expected]
    for row, other in [*stated(results), (ours, "TLM, random text")]:
        assert said_of(text, results.comparison.whole(row, other)) == 1, (row, other)
    by_task = [each for _, line in results.comparison.lines for each in line if each and len(each.tasks) == 1]
    assert all(said_of(text, each) == 1 for each in by_task)
