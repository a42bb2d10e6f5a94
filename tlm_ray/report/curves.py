"""Plot scores over the number that an experiment's rows vary, one panel per task."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from tlm_ray.report import drawing
from tlm_ray.report.drawing import Point
from tlm_ray.report.grids import metric_text
from tlm_ray.report.results import Results
from tlm_ray.report.tables import SPLIT_NAMES

OWN, PAPER = "here", "the paper"


def curve_figure(results: Results) -> bytes:
    """Return a PNG: mean score over the varied number, with error bars over seeds and the paper's numbers.

    A row without such a number, such as a baseline, is a dotted line at its score. The scale is log(1 + value), because
    a number may be 0.
    """
    figure, panels = drawing.make_panels(len(results.tasks), width_in=5.2 if len(results.tasks) == 1 else 4.0)
    flat = flat_rows(results)
    has_paper = False
    for panel, task in zip(panels, results.tasks, strict=True):
        drawing.set_title(panel, f"{task}  ({metric_text(results.metric(task))})")
        own, paper = curve_points(results, task)
        has_paper = has_paper or bool(paper)
        _draw_curves(panel, own, paper)
        for index, row in enumerate(flat):
            if (cell := results.of_row(row).get(task)) is not None:
                panel.axhline(cell.mean, color=drawing.colour_of(index + 1), linestyle=":", linewidth=1.4)
    title = f"{results.view.varied}, log scale" + (
        f"\nhollow grey: {results.view.paper.name} of Yao et al. (2022)" * has_paper
    )
    drawing.set_axis_titles(figure, x=title, y=f"{SPLIT_NAMES[results.split].lower()} score, %")
    drawing.add_legend(figure, {OWN: (drawing.colour_of(0), drawing.marker_of(0))}, _dotted(flat))
    return drawing.to_png(figure)


def flat_rows(results: Results) -> list[str]:
    """Return the rows without the varied number."""
    return [row for row in results.rows if all(cell.x is None for cell in results.of_row(row).values())]


def curve_points(results: Results, task: str) -> tuple[list[Point], list[Point]]:
    """Return a task's curve and the paper's, which is hollow; x is log10(1 + number)."""
    own = [_point(OWN, c.x, c.mean, c.std) for c in results.cells if c.task == task and c.x is not None]
    paper = [_point(PAPER, row.x, row.mean, row.std) for row in results.reported(task) if row.x is not None]
    return own, paper


def _dotted(rows: Sequence[str]) -> dict[str, str]:
    return {row: drawing.colour_of(index + 1) for index, row in enumerate(rows)}


def _point(name: str, x: float | None, y: float, error: float | None) -> Point:
    assert x is not None, "a point of a curve has a varied number"
    is_own = name == OWN
    return Point(
        name=name,
        x=_position(x),
        y=y,
        error=error or 0.0,
        colour=drawing.colour_of(0) if is_own else drawing.FAINT,
        marker=drawing.marker_of(0) if is_own else drawing.marker_of(1),
        hollow=not is_own,
    )


def _draw_curves(panel: Axes, *curves: Sequence[Point]) -> None:
    """Draw each curve through its points, with a tick at each point."""
    for curve in curves:
        ordered = sorted(curve, key=lambda point: point.x)
        for point in ordered:
            drawing.draw_point(panel, point)
        colour = drawing.THREAD if ordered and ordered[0].hollow else drawing.colour_of(0)
        panel.plot(
            [point.x for point in ordered], [point.y for point in ordered], color=colour, linewidth=1.2, zorder=1
        )
    ticks = sorted({point.x for curve in curves for point in curve})
    panel.set_xticks(ticks, [tick_text(x) for x in ticks])
    panel.margins(x=0.12, y=0.15)


def tick_text(position: float) -> str:
    """Return the number at a position of the scale."""
    return f"{10**position - 1:.6g}"


def _position(value: float) -> float:
    return math.log10(1 + value)
