"""Development score against each parameter of a sweep, one panel a parameter."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from tlm_ray.report import drawing
from tlm_ray.report.sweeps import Trial, sort_trials

SYMBOLS = {"k": "$K$", "rho1": r"$\rho_1$", "rho2": r"$\rho_2$"}
MOST_LEVELS = 10  # with more distinct values than this a parameter was drawn, not taken from a grid


def sweep_figure(trials: Sequence[Trial]) -> bytes:
    """Return a PNG: development score against K, rho1 and rho2, one colour and marker a method.

    Every point is a trial. Where a parameter took few values, the methods stand side by side at
    each, and a line joins the best trial of each value: what that value can reach when the other
    two are chosen well. Failed trials are left out. The scale is log(1 + value), as rho1 may be 0.
    """
    scored = [trial for trial in sort_trials(trials) if trial["dev"] is not None]
    methods = sorted({str(trial["method"]) for trial in scored})
    figure, panels = drawing.make_panels(len(SYMBOLS), width_in=4.0)
    for panel, field in zip(panels, SYMBOLS, strict=True):
        drawing.set_title(panel, SYMBOLS[field])
        if scored:
            _draw_parameter(panel, scored, field, methods)
    for panel in panels[1:]:
        panel.sharey(panels[0])
        panel.tick_params(left=False, labelleft=False)
    drawing.set_axis_titles(
        figure,
        x="value tried, log scale; lines join the best trial of each value",
        y="development score, %",
    )
    series = {m: (drawing.colour_of(i), drawing.marker_of(i)) for i, m in enumerate(methods)}
    if series:
        drawing.add_legend(figure, series)
    return drawing.to_png(figure)


def _draw_parameter(panel: Axes, scored: list[dict[str, Any]], field: str, methods: list[str]) -> None:
    levels = sorted({trial[field] for trial in scored})
    is_grid = len(levels) <= MOST_LEVELS
    low, high = _position(levels[0]), _position(levels[-1])
    width = (high - low) or 1.0
    # Side by side within 4 % of the panel, which is less than grids leave between two levels.
    step = 0.04 * width / len(methods) if is_grid else 0.0
    for index, method in enumerate(methods):
        shift = step * (index - (len(methods) - 1) / 2)
        own = [(t[field], t["dev"]) for t in scored if str(t["method"]) == method]
        _draw_method(panel, own, index, shift, is_grid)
    panel.set_xlim(low - 0.08 * width, high + 0.08 * width)
    ticks = _apart(levels if is_grid else _round_values(levels), 0.07 * width)
    panel.set_xticks([_position(value) for value in ticks], [f"{value:g}" for value in ticks])


def _draw_method(panel: Axes, points: list[tuple[float, float]], index: int, shift: float, is_grid: bool) -> None:
    colour, marker = drawing.colour_of(index), drawing.marker_of(index)
    panel.plot(
        [_position(x) + shift for x, _ in points],
        [dev for _, dev in points],
        color=colour,
        marker=marker,
        markersize=3.5 if is_grid else 5,
        markeredgewidth=0,
        linewidth=0,
        alpha=0.45 if is_grid else 0.85,
    )
    if is_grid:
        best = {x: max(dev for at, dev in points if at == x) for x, _ in sorted(points)}
        places = [_position(x) + shift for x in best]
        panel.plot(places, list(best.values()), color=colour, marker=marker, markersize=5.5, lw=1.4)


def _position(value: float) -> float:
    return math.log10(1 + value)


def _round_values(levels: list[float]) -> list[float]:
    """Return 0 and 1, 2, 5 of every decade, as far as the levels reach."""
    top = math.ceil(math.log10(1 + levels[-1])) + 1
    candidates = [0.0, *(m * 10.0**e for e in range(-2, top) for m in (1, 2, 5))]
    return [value for value in candidates if levels[0] <= value <= levels[-1]]


def _apart(values: list[float], gap: float) -> list[float]:
    """Leave out the values whose tick labels would run into the one before."""
    chosen: list[float] = []
    for value in values:
        if not chosen or _position(value) - _position(chosen[-1]) >= gap:
            chosen.append(value)
    return chosen
