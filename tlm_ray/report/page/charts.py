"""Shared parts of a page's charts: panels under a heading, legends, points."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tlm_ray.report import drawing
from tlm_ray.report.drawing import Point
from tlm_ray.report.page import svg

DASHES = 3  # line styles, so that colour and line repeat after 18 series


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of a legend."""

    name: str
    swatch: Markup
    series: int | None = None
    """number of the series whose elements it highlights; None if it highlights none"""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels of one kind."""

    heading: str
    panels: Sequence[tuple[str, Markup]]
    """SVG panels with their titles"""
    legend: Sequence[Entry] = ()
    notes: Sequence[str] = ()
    """caption: the axes, and what else a reader needs"""


def colour_class(index: int) -> str:
    """Return the CSS classes of a series' colour and line."""
    repeat = index // len(drawing.COLOURS) % DASHES
    return f"c{index % len(drawing.COLOURS)}" + (f" d{repeat}" if repeat else "")


def classes(point: Point) -> str:
    """Return the CSS classes of a point: its colour; the paper's points are hollow."""
    return "paper" if point.hollow else f"c{drawing.COLOURS.index(point.colour)}"


def draw_point(panel: svg.Panel, point: Point, text: str) -> Markup:
    """Return a point with its error bar and tooltip."""
    x, y = panel.at(point.x, point.y)
    bars = [panel.line([(point.x, point.y - point.error), (point.x, point.y + point.error)])] if point.error else []
    drawn = svg.marker(point.marker, x, y, class_="mark")
    return svg.tag("g", svg.title(text), *bars, drawn, class_=classes(point))


def span(points: Sequence[Point]) -> list[float]:
    """Return the ends of all error bars, to scale the axes."""
    return [point.y + sign * point.error for point in points for sign in (-1, 1)]
