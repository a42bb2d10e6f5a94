"""Plot scores over training compute, or over the number that the rows vary, one panel per task."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from tlm_ray.report.figures import drawing
from tlm_ray.report.figures.drawing import Fill, Point
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.exports import SPLIT_NAMES
from tlm_ray.report.tables.frontier import frontier_of
from tlm_ray.report.tables.grids import MARK, metric_text, name_of
from tlm_ray.report.tables.results import ResultsData, View

OWN, PAPER = "here", "the paper"
COSTS = {"FLOPs": "training FLOPs (6 × tokens × parameters)", "minutes": "time of training"}
TIMES = {  # of the axis, in minutes
    number * unit: f"{number} {name}"
    for unit, name, numbers in ((1 / 60, "s", (1, 3, 10)), (1, "min", (1, 3, 10)), (60, "h", (1, 3, 10, 30)))
    for number in numbers
}
MOST_TIMES = 6  # of them per panel; of more, every other one is left out, so that their names have room
NEAR = 0.03  # share of the axis that a mark covers
LEAST_SPAN = 0.8  # decades of an axis whose points are all at one place
# the paper's models of one kind, smaller to larger
PAPER_SERIES = {
    "TLM (paper)": ("TLM small", "TLM medium", "TLM large"),
    "BERT (paper)": ("BERT-Base", "BERT-Large"),
    "RoBERTa (paper)": ("RoBERTa-Base", "RoBERTa-Large"),
}


def score_figure(results: ResultsData, task: str = "") -> Figure:
    """Return a figure: mean score with error bars over seeds, and the paper's numbers, hollow and grey.

    The x axis is the number that the rows vary (log(1 + value)), or else training FLOPs or minutes (log). Over FLOPs a
    pretrained row is at those of its pretraining, if published. A row without a place is a dotted line at its score.
    Ensembles have the colour and marker of their members' row, and differ in their fill, but not over a varied number.
    Over minutes a grey line leads along the rows that no faster one reaches on dev (`frontier_of`).

    task: draw this task alone, without the title and legend that a page writes; "" for a panel per task, three per row.
    """
    tasks = [task] if task else results.tasks
    figure, panels = drawing.make_panels(len(tasks), width_in=5.2 if len(results.tasks) == 1 else 4.0)
    for panel, each in zip(panels, tasks, strict=True):
        _draw_panel(panel, points_of(results, each), results.view)
        if _is_over_time(results):
            line = [(cell.wall_s / 60, cell.mean) for cell in frontier_of(results, each) if cell.wall_s]
            drawing.draw_steps(panel, line)
        if not task:
            drawing.set_title(panel, task_title(results, each))
    drawing.set_axis_titles(figure, x=_x_title(results), y=f"{SPLIT_NAMES[results.split].lower()} score, %")
    if not task:
        drawing.add_legend(figure, legend_of(results))
    return figure


def task_title(results: ResultsData, task: str) -> str:
    """Return a task's name and metric."""
    return f"{task} ({metric_text(results.metric(task))})"


def legend_of(results: ResultsData) -> list[Point]:
    """Return a point per entry of the legend: the series of all tasks without ensembles, then how these are filled."""
    series, key = _series_of(results), replace(_point("", 1.0, 0.0, 0.0, 0), colour=drawing.INK)
    drawn = {point.fill for point in series}
    filled = [replace(key, name=f"…{kind}", fill=fill) for kind, fill in _fills(results).items() if fill in drawn]
    return [point for point in series if point.fill == "full"] + filled


def _series_of(results: ResultsData) -> list[Point]:
    points = [point for task in results.tasks for point in points_of(results, task)]
    return list({point.name: point for point in points}.values())


def _fills(results: ResultsData) -> dict[str, Fill]:
    """Return how the marks of ensembles are filled, by what their names add to that of their members' row."""
    kinds = dict.fromkeys(map(_kind, results.cells))
    return dict(zip(filter(None, kinds), cycle(drawing.FILLS), strict=False))


def _kind(cell: Cell) -> str:
    return cell.row.removeprefix(cell.members) if cell.members else ""


def points_of(results: ResultsData, task: str) -> list[Point]:
    """Return the points of a task's panel, scores in percent: our rows, then the paper's.

    Marks that would hide others are moved aside, but not over minutes.
    """
    if _is_over_time(results):  # a moved mark would be off the line of the fastest rows
        return _by_minutes(results, task)
    if results.view.varied:
        return _apart(_varied(results, task), np.log1p)
    return _apart(_by_flops(results, task), np.log10)


def _is_over_time(results: ResultsData) -> bool:
    return not results.view.varied and results.view.cost == "minutes"


def _by_minutes(results: ResultsData, task: str) -> list[Point]:
    return [_own_point(results, name_of(cell), cell.wall_s / 60, cell) for cell in _cells(results, task)]


def _by_flops(results: ResultsData, task: str) -> list[Point]:
    own = [
        _own_point(results, _name_by_flops(cell), cell.flops + cell.pretraining_flops, cell)
        for cell in _cells(results, task)
    ]
    found = {row.row: row for row in results.reported(task) if row.flops}
    return own + [
        _paper_point(name, found[model].flops, found[model], series)
        for series, (name, models) in enumerate(PAPER_SERIES.items())
        for model in models
        if model in found
    ]


def _apart(points: Sequence[Point], scale: Callable[[np.ndarray], np.ndarray]) -> list[Point]:
    """Move marks apart that would hide each other, those of one place on the axis; levels follow them."""
    placed, levels = ([p for p in points if (p.x is None) is is_level] for is_level in (False, True))
    if not placed:
        return levels
    places = scale(np.array([point.x for point in placed], float))
    span = max(float(np.ptp(places)), LEAST_SPAN)
    return [*drawing.apart(placed, ((places - places.min()) / span).tolist(), near=NEAR), *levels]


def _varied(results: ResultsData, task: str) -> list[Point]:
    flat = [row for row in results.rows if all(cell.x is None for cell in results.of_row(row).values())]
    own = _cells(results, task)
    return (
        [_point(OWN, c.x, c.mean, c.std, 0) for c in own if c.x is not None]
        + [_point(c.row, None, c.mean, c.std, flat.index(c.row) + 1) for c in own if c.row in flat]
        + [_paper_point(PAPER, row.x, row, 1) for row in results.reported(task) if row.x is not None]
    )


def _cells(results: ResultsData, task: str) -> list[Cell]:
    return [cell for cell in results.cells if cell.task == task]


def _own_point(results: ResultsData, name: str, cost: float, cell: Cell) -> Point:
    """Return the point of one of our rows at its cost; an ensemble's is like its members', except for its fill."""
    rows = list(dict.fromkeys(each.members or each.row for each in results.cells))
    point = _point(name, cost or None, cell.mean, cell.std, rows.index(cell.members or cell.row))
    return replace(point, fill=_fills(results).get(_kind(cell), "full"))


def _name_by_flops(cell: Cell) -> str:
    """Return a row's name, with MARK if its FLOPs leave out an unknown pretraining."""
    return cell.row if cell.pretraining_flops else name_of(cell)


def _point(name: str, x: float | None, y: float, error: float, index: int) -> Point:
    colour, marker = drawing.colour_of(index), drawing.marker_of(index)
    return Point(name=name, x=x, y=y, error=error, colour=colour, marker=marker, hollow=False)


def _paper_point(name: str, x: float | None, row: Any, series: int) -> Point:
    marker, error = drawing.marker_of(series), row.std or 0.0
    return Point(name=name, x=x, y=row.mean, error=error, colour=drawing.FAINT, marker=marker, hollow=True)


def _x_title(results: ResultsData) -> str:
    varied = results.view.varied
    title = f"{varied}, log scale" if varied else COSTS[results.view.cost]
    if _is_over_time(results):
        title += "\ngrey line: rows that are better on dev than all faster ones"
    if any(point.shift for task in results.tasks for point in points_of(results, task)):
        title += "\nmarks of one place are side by side"
    series = _series_of(results)
    if any(point.hollow for point in series):
        title += f"\nhollow grey: {results.view.paper.name} of Yao et al. (2022)"
    if any(MARK in point.name for point in series):
        title += f"\n{MARK} without its pretraining"
    return title


def _draw_panel(panel: Axes, points: Sequence[Point], view: View) -> None:
    """Draw the points, a line through those of one name, and dotted lines for those without a place."""
    for name in dict.fromkeys(point.name for point in points):
        drawing.draw_series(panel, [point for point in points if point.name == name])
    places = sorted({point.x for point in points if point.x is not None})
    if view.varied:
        _scale_varied(panel, places)
    else:
        _scale_cost(panel, places, TIMES if view.cost == "minutes" else {})
    panel.margins(y=0.15)


def _scale_varied(panel: Axes, places: Sequence[float]) -> None:
    panel.set_xscale("function", functions=(np.log1p, np.expm1))  # a number may be 0
    panel.set_xticks(places, [f"{x:.6g}" for x in places])
    panel.margins(x=0.12)


def _scale_cost(panel: Axes, places: Sequence[float], named: Mapping[float, str]) -> None:
    """Make the x axis logarithmic; named: its ticks, those of powers of ten if there are none."""
    panel.set_xscale("log")
    low, high = (math.log10(places[0]), math.log10(places[-1])) if places else (0.0, 0.0)
    margin = max(0.1 * (high - low), 0.4)  # in decades
    first, last = 10 ** (low - margin), 10 ** (high + margin)
    panel.xaxis.set_major_locator(LogLocator(numticks=6))
    if ticks := [x for x in named if first <= x <= last]:
        ticks = ticks[:: 2 if len(ticks) > MOST_TIMES else 1]
        panel.set_xticks(ticks, [named[x] for x in ticks])
        panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlim(first, last)
    panel.xaxis.set_minor_formatter(NullFormatter())
