"""Draw scores over FLOPs, or over the number that a table's rows vary, like the PNG beside the page."""

from collections.abc import Sequence
from dataclasses import replace
from math import log10

from markupsafe import Markup

from tlm_ray.report import drawing
from tlm_ray.report.curves import OWN, PAPER, curve_points, flat_rows, tick_text
from tlm_ray.report.drawing import Point
from tlm_ray.report.figures import flops_points
from tlm_ray.report.flops import human
from tlm_ray.report.formats import pair_text
from tlm_ray.report.grids import metric_text
from tlm_ray.report.page import svg
from tlm_ray.report.page.charts import Chart, Entry, classes, colour_class, draw_point, span
from tlm_ray.report.results import Results
from tlm_ray.report.tables import SPLIT_NAMES

FREE_DECADES = 0.4


def score_chart(results: Results) -> Chart:
    """Return the chart of the view, a panel per task."""
    return _curves(results) if results.view.varied else _flops(results)


def _flops(results: Results) -> Chart:
    panels, seen = [], dict[str, Point]()
    for task in results.tasks:
        points = flops_points(results, task)
        seen |= {point.name: point for point in points}
        placed = [point.x for point in points if point.x > 0] or [1.0]
        panel = svg.Panel(x=svg.log_axis(placed, margin=FREE_DECADES), y=svg.linear_axis(span(points)))
        marks = [*_threads(panel, points), *(_flops_point(panel, point) for point in points)]
        panels.append((_title(results, task), panel.draw(f"{task}: score against FLOPs", marks)))
    notes = [f"{_split(results)} score in percent over training FLOPs (6 × tokens × parameters)."]
    if any(point.hollow for point in seen.values()):
        notes.append(f"Grey: {results.view.paper.name} of Yao et al. (2022).")
    if any(not point.x for point in seen.values()):
        notes.append("Dotted lines: baselines that train no encoder.")
    legend = [Entry(name=p.name, swatch=svg.swatch(p.marker if p.x else ":", classes(p))) for p in seen.values()]
    return Chart(heading="Score against FLOPs", panels=panels, legend=legend, notes=notes)


def _flops_point(panel: svg.Panel, point: Point) -> Markup:
    said = f"{point.name}: {_score(point)}"
    if not point.x:  # 0 is not on a logarithmic axis
        return panel.level(point.y, svg.title(said), class_=f"dotted {classes(point)}")
    return draw_point(panel, _at_decade(point), f"{said} at {human(point.x)} FLOPs")


def _at_decade(point: Point) -> Point:
    return replace(point, x=log10(point.x))


def _threads(panel: svg.Panel, points: Sequence[Point]) -> list[Markup]:
    """Join the paper's models of one kind."""
    names = dict.fromkeys(point.name for point in points if point.hollow)
    lines = [sorted((_at_decade(p).x, p.y) for p in points if p.hollow and p.name == name) for name in names]
    return [panel.line(line, class_="thread") for line in lines]


def _curves(results: Results) -> Chart:
    flat, varied = flat_rows(results), results.view.varied
    points = {task: curve_points(results, task) for task in results.tasks}
    panels = [(_title(results, task), _curve_panel(results, task, *points[task], flat)) for task in results.tasks]
    has_paper = any(paper for _, paper in points.values())
    legend = [Entry(name=OWN, swatch=svg.swatch(drawing.marker_of(0), "c0"))]
    legend += [Entry(name=PAPER, swatch=svg.swatch(drawing.marker_of(1), "paper"))] if has_paper else []
    legend += [Entry(name=row, swatch=svg.swatch(":", colour_class(i + 1))) for i, row in enumerate(flat)]
    notes = [f"{_split(results)} score in percent over {varied}, scale log(1 + value)."]
    notes += [f"Grey: {results.view.paper.name} of Yao et al. (2022)."] if has_paper else []
    return Chart(heading=f"Score over {varied}", panels=panels, legend=legend, notes=notes)


def _curve_panel(
    results: Results, task: str, own: Sequence[Point], paper: Sequence[Point], flat: Sequence[str]
) -> Markup:
    """Return the curves of a task, and a dotted line for each row without a varied number."""
    levels = [(i, row, results.of_row(row)[task].mean) for i, row in enumerate(flat) if task in results.of_row(row)]
    panel = _curve_frame([*own, *paper], [level for *_, level in levels])
    curves = [panel.line(sorted((p.x, p.y) for p in some), class_=classes(some[0])) for some in (paper, own) if some]
    points = [draw_point(panel, p, f"{p.name}, {tick_text(p.x)}: {_score(p)}") for p in (*paper, *own)]
    flats = [
        panel.level(level, svg.title(f"{row}: {level:.2f}"), class_=f"dotted {colour_class(i + 1)}")
        for i, row, level in levels
    ]
    return panel.draw(f"{task}: score over {results.view.varied}", [*curves, *points, *flats])


def _curve_frame(points: Sequence[Point], levels: Sequence[float]) -> svg.Panel:
    places = sorted({point.x for point in points}) or [0.0]
    room = 0.08 * ((places[-1] - places[0]) or 1.0)
    apart = [x for i, x in enumerate(places) if not i or x - places[i - 1] > room / 2]
    x = svg.Axis(low=places[0] - room, high=places[-1] + room, ticks=[(each, tick_text(each)) for each in apart])
    return svg.Panel(x=x, y=svg.linear_axis([*span(points), *levels]))


def _score(point: Point) -> str:
    return pair_text(point.y, point.error) if point.error else f"{point.y:.2f}"


def _split(results: Results) -> str:
    return SPLIT_NAMES[results.split]


def _title(results: Results, task: str) -> str:
    return f"{task} ({metric_text(results.metric(task))})"
