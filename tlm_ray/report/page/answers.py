"""Prepare the page's answers: what was found, in sentences, and the differences that no sentence states."""

from dataclasses import dataclass

from markupsafe import Markup

from tlm_ray.report.figures.rows import rows_figure
from tlm_ray.report.formats import ABSENT
from tlm_ray.report.page.svg import inline
from tlm_ray.report.statistics.comparison import claim, difference_text, p_text
from tlm_ray.report.statistics.differences import Difference
from tlm_ray.report.tables.results import ResultsData
from tlm_ray.report.tables.sentences import averages, standing, stated, summary

ABOVE = "stated above"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A cell of the table of differences."""

    text: str
    """the difference and its interval"""
    beside: str = ""
    """its p, and the difference needed for 80 % power where it is not shown; or that it is not tested"""
    is_shown: bool = False


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a table shows. Each difference is stated once."""

    sentences: list[str]
    """those of the terminal"""
    figure: Markup
    """the score of every row; "" if no row has all tasks"""
    against: str
    """the row compared with the others"""
    columns: list[str]
    """of the table of differences"""
    lines: list[tuple[str, list[Found]]]
    """each other row with its differences that no sentence states"""
    claims: list[str]
    """on expected pairs that neither a sentence nor the table states"""
    paper: list[str]
    """what the paper reports on the expected pairs"""
    meaning: str
    """of bold and of intervals; "" without differences"""


def answers_of(results: ResultsData) -> Answers:
    """Return the answers of a table."""
    told, against = stated(results), results.view.against
    verdicts = [each for each in results.verdicts if each.found]
    left = [
        each for each in verdicts if (each.above, each.below) not in told and against not in (each.above, each.below)
    ]
    label = "score of every row"
    return Answers(
        sentences=[*standing(results), *summary(results)],
        figure=inline(rows_figure(results), label) if averages(results) else Markup(""),
        against=against,
        columns=results.comparison.columns,
        lines=_lines(
            results, [*(other for row, other in told if row == against), *(a for a, b in told if b == against)]
        ),
        claims=[claim(each.found, each.whole) for each in left if each.whole],
        paper=[f"{each.above} above {each.below}: {each.paper_words}" for each in verdicts if each.reported],
        meaning=results.comparison.meaning if results.differences else "",
    )


def _lines(results: ResultsData, told: list[str]) -> list[tuple[str, list[Found]]]:
    """Return the lines of the table; what sentences state of the rows in `told` is not repeated."""
    several = len(results.comparison.tasks) > 1
    lines = []
    for other, found in results.comparison.lines:
        if other in told and not several:
            continue
        cells = [_found(each) for each in found]
        lines.append((other, [*cells[:-1], Found(text=ABOVE)] if other in told and found[-1] else cells))
    return lines


def _found(each: Difference | None) -> Found:
    if each is None:
        return Found(text=ABSENT)
    if not each.counts_seeds:
        return Found(text=difference_text(each), beside="not tested")
    needed = f"; {each.smallest:.1f} needed" if not each.is_shown and each.error else ""
    return Found(text=difference_text(each), beside=f"p {p_text(each.reported_p)}{needed}", is_shown=each.is_shown)
