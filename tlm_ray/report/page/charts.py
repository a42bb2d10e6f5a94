"""Shared parts of a page's charts: figures under a heading, and their legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tlm_ray.report.figures.drawing import COLOURS, FILLS, INK, MARKERS, Point
from tlm_ray.report.figures.scores import legend_of, score_figure, task_title
from tlm_ray.report.page.svg import inline
from tlm_ray.report.tables.results import ResultsData

FULL, HOLLOW = (dict(zip(MARKERS, signs, strict=True)) for signs in ("●■◆▲▼✚", "○□◇△▽✛"))
FILLED = dict(zip(FILLS, "◐◒○◑◓", strict=True))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of a legend."""

    name: str
    sign: str
    """a character like the marker or line"""
    colour: str
    """CSS class"""
    series: int | None = None
    """number of the series whose elements it highlights; None if it highlights none"""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Figures of one kind."""

    heading: str
    panels: Sequence[tuple[str, Markup]]
    """SVG figures with their titles"""
    legend: Sequence[Entry]
    note: str = ""
    """caption: what else a reader needs"""


def score_chart(results: ResultsData) -> Chart:
    """Return the figure of the table, a picture per task."""
    over = results.view.varied or results.view.cost
    panels = [
        (task_title(results, task), inline(score_figure(results, task), f"{task}: score over {over}"))
        for task in results.tasks
    ]
    return Chart(heading=f"Score over {over}", panels=panels, legend=[_entry(each) for each in legend_of(results)])


def _entry(point: Point) -> Entry:
    return Entry(name=point.name, sign=_sign(point), colour=_colour(point))


def _colour(point: Point) -> str:
    if point.hollow:
        return "paper"
    return "dim" if point.colour == INK else f"c{COLOURS.index(point.colour)}"


def _sign(point: Point) -> str:
    if point.x is None:
        return "┈"
    return FILLED.get(point.fill) or (HOLLOW if point.hollow else FULL)[point.marker]
