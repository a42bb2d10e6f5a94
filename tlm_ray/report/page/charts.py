"""What charts of a page have in common: panels of one kind under a heading, and what stands for what in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tlm_ray.report import drawing
from tlm_ray.report.drawing import Point
from tlm_ray.report.page import svg

DASHES = 3  # kinds of lines, so that colour and line repeat after 18 series


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name of a legend."""

    name: str
    swatch: Markup
    series: int | None = None
    """whose elements carry the class of this series; None for what cannot be picked out"""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels of one kind."""

    heading: str
    panels: Sequence[tuple[str, Markup]]
    """each with its title"""
    legend: Sequence[Entry] = ()
    notes: Sequence[str] = ()
    """what stands along the axes, and all else that a reader should know"""


def colour_class(index: int) -> str:
    """Return the class of the colour, and of the line, of a series."""
    repeat = index // len(drawing.COLOURS) % DASHES
    return f"c{index % len(drawing.COLOURS)}" + (f" d{repeat}" if repeat else "")


def classes(point: Point) -> str:
    """Return the classes of a point of a figure: its colour; hollow points are the paper's."""
    return "paper" if point.hollow else f"c{drawing.COLOURS.index(point.colour)}"


def draw_point(panel: svg.Panel, point: Point, text: str) -> Markup:
    """Return a point with its error bar and what it says."""
    x, y = panel.at(point.x, point.y)
    bars = [panel.line([(point.x, point.y - point.error), (point.x, point.y + point.error)])] if point.error else []
    drawn = svg.marker(point.marker, x, y, class_="mark")
    return svg.tag("g", svg.title(text), *bars, drawn, class_=classes(point))


def span(points: Sequence[Point]) -> list[float]:
    """Return the ends of all error bars."""
    return [point.y + sign * point.error for point in points for sign in (-1, 1)]
