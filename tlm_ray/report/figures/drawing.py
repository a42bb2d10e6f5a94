"""Shared parts of figures: colours, empty panels, points, PNG bytes.

Figures use matplotlib's object interface on an Agg canvas, never pyplot. Pyplot's global state is not thread-safe
and keeps every figure alive.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

# The palette of Okabe and Ito, distinguishable with every common kind of colour blindness;
# markers repeat the distinction for greyscale print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "D", "^", "v", "P")
Fill = Literal["full", "left", "bottom", "none", "right", "top"]
FILLS: tuple[Fill, ...] = ("left", "bottom", "none", "right", "top")  # which part of an ensemble's mark has its colour
SHADES = ("#d3dfea", "#a9cbe3", "#6ba6d3", "#2a72b5", "#08306b")  # from the worst to the best
INK = "#333333"
FAINT = "#8a8a8a"
GRID = "#e6e6e6"
THREAD = "#cccccc"
PANELS_A_ROW = 3
DOTS_PER_INCH = 160
LEGEND_COLUMN_IN = 2.6
MARK_IN = 0.1  # width of a mark, by which marks at one place are moved apart


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of the series `name` in data coordinates; `error` extends equally up and down."""

    name: str
    x: float | None
    """None for a level, a dotted line across the panel"""
    y: float
    error: float
    colour: str
    marker: str
    hollow: bool
    """it is one of the paper's"""
    fill: Fill = "full"
    """which part of its mark has the colour: full, or one of FILLS"""
    shift: float = 0.0
    """how far it is drawn to the right of x, in widths of a mark"""


def colour_of(index: int) -> str:
    """Return the colour of the index-th series."""
    return COLOURS[index % len(COLOURS)]


def marker_of(index: int) -> str:
    """Return the marker of the index-th series; colour and marker together repeat after 36."""
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def make_panels(count: int, *, width_in: float, height_in: float = 3.2) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` empty panels of the given size in inches, three per row."""
    columns = min(count, PANELS_A_ROW)
    rows = math.ceil(count / columns)
    figure = Figure(
        figsize=(width_in * columns, height_in * rows + 0.4),
        dpi=DOTS_PER_INCH,
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08),
    )
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in panels[count:]:
        unused.remove()
    for panel in panels[:count]:
        make_bare(panel)
    return figure, panels[:count]


def make_grid(rows: int, columns: int, *, side_in: float) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of small square panels without ticks."""
    figure = Figure(
        figsize=(side_in * columns + 0.5, side_in * rows + 0.5),
        dpi=DOTS_PER_INCH,
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02),
    )
    FigureCanvasAgg(figure)
    panels = [list(row) for row in figure.subplots(rows, columns, squeeze=False)]
    for panel in (panel for row in panels for panel in row):
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[:].set_visible(False)
    return figure, panels


def make_bare(panel: Axes) -> None:
    """Give a panel two thin axes and faint horizontal lines."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(FAINT)
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(which="both", colors=INK, labelsize=8)


def set_title(panel: Axes, text: str) -> None:
    """Write a panel's title above its left edge."""
    panel.set_title(plain(text), fontsize=10, color=INK, loc="left")


def set_axis_titles(figure: Figure, *, x: str, y: str) -> None:
    """Write the common x and y labels of all panels."""
    figure.supxlabel(x, fontsize=9, color=INK)
    figure.supylabel(y, fontsize=9, color=INK)


def apart(points: Sequence[Point], places: Sequence[float], *, near: float) -> list[Point]:
    """Shift points that would hide each other to both sides of their common place; return all, in order.

    places: each point's place on the axis, from 0 to 1. near: points within this distance share a place.
    """
    order = sorted(range(len(points)), key=lambda i: (places[i], i))
    groups: list[list[int]] = []
    for i in order:
        if groups and places[i] - places[groups[-1][0]] <= near:
            groups[-1].append(i)
        else:
            groups.append([i])
    shifts = {i: k - (len(group) - 1) / 2 for group in groups for k, i in enumerate(sorted(group))}
    return [replace(point, shift=shifts[i]) for i, point in enumerate(points)]


def draw_series(panel: Axes, points: Sequence[Point]) -> None:
    """Draw a series: a line through its points, smaller and behind others if hollow, or dotted lines for levels."""
    for point in points:
        if point.x is None:
            panel.axhline(point.y, color=point.colour, linestyle=":", linewidth=1.4)
        else:
            _draw_point(panel, point.x, point)
    line = sorted((point.x, point.y) for point in points if point.x is not None)
    if len(line) > 1:
        colour = THREAD if points[0].hollow else points[0].colour
        panel.plot(*zip(*line, strict=True), color=colour, linewidth=1.2, zorder=1)


def draw_steps(panel: Axes, places: Sequence[tuple[float, float]]) -> None:
    """Draw a grey line behind all points that keeps the y of each place, (x, y), up to the next one."""
    if places:
        panel.step(*zip(*places, strict=True), where="post", color=FAINT, linewidth=1.0, zorder=1)


def _draw_point(panel: Axes, x: float, point: Point) -> None:
    figure = panel.get_figure(root=True)
    assert figure is not None
    moved = ScaledTranslation(MARK_IN * point.shift, 0.0, figure.dpi_scale_trans)
    panel.errorbar(
        x,
        point.y,
        yerr=point.error or None,
        color=point.colour,
        marker=point.marker,
        markersize=4.2 if point.hollow else 6.5,
        **_face(point),
        linewidth=0.8 if point.hollow else 1.3,
        capsize=0 if point.hollow else 2.5,
        zorder=2 if point.hollow else 3,
        transform=panel.transData + moved,
    )
    panel.update_datalim([(x, point.y - point.error), (x, point.y + point.error)])  # it counts no moved marks


def _face(point: Point) -> dict[str, Any]:
    """Return how a mark is filled, with white where it has no colour, so that nothing shows through."""
    is_empty = point.hollow or point.fill == "none"
    return {
        "fillstyle": "full" if is_empty else point.fill,
        "markerfacecolor": "white" if is_empty else point.colour,
        "markerfacecoloralt": "white",
    }


def add_legend(figure: Figure, series: Sequence[Point]) -> None:
    """Add a legend above the panels, an entry per series."""
    handles = [
        Line2D([], [], color=p.colour, linestyle=":", label=plain(p.name))
        if p.x is None
        else Line2D(
            [], [], color=p.colour, marker=p.marker, linewidth=0, label=plain(p.name), **_face(p),
        )
        for p in series
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=max(1, int(figure.get_figwidth() // LEGEND_COLUMN_IN)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handletextpad=0.2,
    )


def plain(text: str) -> str:
    """Return a name that matplotlib draws as it is: dollar signs start no formula, and nothing is invisible."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$")


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes, the same bytes for the same figure."""
    stream = io.BytesIO()
    # a legend with long names may be wider than the panels
    figure.savefig(stream, format="png", facecolor="white", bbox_inches="tight", metadata={"Software": None})
    return stream.getvalue()
