"""Plot scores against training compute, the paper's main claim, one panel per task."""

import math
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from tlm_ray.report import drawing
from tlm_ray.report.cells import Cell
from tlm_ray.report.drawing import Point
from tlm_ray.report.grids import MARK, metric_text
from tlm_ray.report.labels import name_points
from tlm_ray.report.results import Results
from tlm_ray.report.tables import SPLIT_NAMES

# The paper's model behind each grey name, which is written at the first of its points with room for it.
PAPER_SERIES = {
    "TLM (paper)": ("TLM small", "TLM medium", "TLM large"),
    "BERT": ("BERT-Base", "BERT-Large"),
    "RoBERTa": ("RoBERTa-Large", "RoBERTa-Base"),
}


def score_against_flops(results: Results) -> bytes:
    """Return a PNG: mean score over training FLOPs (log), with error bars over seeds.

    One panel per task, three per row; one colour and marker per row of the table, named beside its points, or in a
    legend if a panel has no room. Hollow grey points are the paper's numbers. A pretrained row is at the FLOPs of its
    pretraining, if published. A row without training (0 FLOPs) is a dotted line at its score.
    """
    tasks = results.tasks
    figure, panels = drawing.make_panels(len(tasks), width_in=5.2 if len(tasks) == 1 else 4.0)
    points = [flops_points(results, task) for task in tasks]
    for panel, task, found in zip(panels, tasks, points, strict=True):
        drawing.set_title(panel, f"{task}  ({metric_text(results.metric(task))})")
        _draw_panel(panel, found)
    x_title = "training FLOPs (6 × tokens × parameters)"
    if any(point.hollow for found in points for point in found):
        x_title += f"\nhollow grey: {results.view.paper.name} of Yao et al. (2022), smaller to larger models"
    if any(map(_lacks_pretraining, results.cells)):
        x_title += f"\n{MARK} without its pretraining"
    drawing.set_axis_titles(figure, x=x_title, y=f"{SPLIT_NAMES[results.split].lower()} score, %")
    _add_names(figure, panels, points)
    return drawing.to_png(figure)


def _lacks_pretraining(cell: Cell) -> bool:
    """Return whether a row is at the FLOPs of its fine-tuning alone, because those of its pretraining are unknown."""
    return cell.pretrained and not cell.pretraining_flops


def flops_points(results: Results, task: str) -> list[Point]:
    """Return the points of a task's panel, in percent over FLOPs: our rows, then the paper's, which are hollow."""
    return _own_points(results, task) + _paper_points(results, task)


def _own_points(results: Results, task: str) -> list[Point]:
    return [
        Point(
            name=f"{cell.row} {MARK}" if _lacks_pretraining(cell) else cell.row,
            x=cell.flops + cell.pretraining_flops,
            y=cell.mean,
            error=cell.std,
            colour=drawing.colour_of(index),
            marker=drawing.marker_of(index),
            hollow=False,
        )
        for index, cell in enumerate(results.of_row(row).get(task) for row in results.rows)
        if cell is not None
    ]


def _paper_points(results: Results, task: str) -> list[Point]:
    found = {row.row: row for row in results.reported(task) if row.flops}
    return [
        Point(
            name=name,
            x=found[model].flops,
            y=found[model].mean,
            error=found[model].std or 0.0,
            colour=drawing.FAINT,
            marker=drawing.marker_of(series),
            hollow=True,
        )
        for series, (name, models) in enumerate(PAPER_SERIES.items())
        for model in models
        if model in found
    ]


def _draw_panel(panel: Axes, points: list[Point]) -> None:
    panel.set_xscale("log")
    for point in points:
        if point.x > 0:
            drawing.draw_point(panel, point)
        else:  # 0 is not on a logarithmic axis
            panel.axhline(point.y, color=point.colour, linestyle=":", linewidth=1.2)
    for name in dict.fromkeys(point.name for point in points if point.hollow):
        line = sorted((point.x, point.y) for point in points if point.name == name and point.hollow)
        panel.plot(*zip(*line, strict=True), color=drawing.THREAD, linewidth=1.2, zorder=1)
    exponents = [math.log10(point.x) for point in points if point.x > 0] or [0.0]
    low, high = min(exponents), max(exponents)
    margin = max(0.22 * (high - low), 0.8)  # in decades, so that the outermost names have room
    panel.set_xlim(10 ** (low - margin), 10 ** (high + margin))
    panel.xaxis.set_major_locator(LogLocator(numticks=6))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.margins(y=0.15)


def _add_names(figure: Figure, panels: list[Axes], points: list[list[Point]]) -> None:
    """Write names beside the points, or a legend of our rows if a panel has no room."""
    own = [[point for point in found if not point.hollow] for found in points]
    paper = [[point for point in found if point.hollow] for found in points]
    figure.draw_without_rendering()
    notes = [name_points(*each) for each in zip(panels, points, points, strict=True)]
    if all(p.name in written for written, named in zip(notes, own, strict=True) for p in named):
        return
    for note in chain.from_iterable(written.values() for written in notes):
        note.remove()
    series = {point.name: (point.colour, point.marker) for point in chain.from_iterable(own)}
    drawing.add_legend(figure, series)
    figure.draw_without_rendering()
    for panel, found, named in zip(panels, points, paper, strict=True):
        name_points(panel, found, named)
