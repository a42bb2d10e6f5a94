"""Development score against each parameter of a sweep, one panel a parameter."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from tlm_ray.report import drawing
from tlm_ray.report.parameters import Parameter
from tlm_ray.report.sweeps import Trial

SYMBOLS = {"k": "$K$", "rho1": r"$\rho_1$", "rho2": r"$\rho_2$"}
MOST_COLOURS = 6  # values of a parameter of words that are told apart by colour
LONGEST = 14  # characters of a word at a tick


def sweep_figure(ordered: Sequence[Trial], parameters: Sequence[str]) -> bytes:
    """Return a PNG: development score against each parameter that was varied, one panel each.

    Every point is a trial. The first parameter of words, of few values, gives the colours and markers; where it is not
    alone it has no panel of its own. Where a parameter took few values, the colours stand side by side at each, and a
    line joins the best trial of each value: what that value can reach when the others are chosen well. Failed trials
    are left out. Numbers stand as `tlm_ray.report.parameters` has them.
    """
    scored = [trial for trial in ordered if trial["dev"] is not None]
    series = _series(scored, parameters)
    names = [str(trial[series]) if series else "" for trial in scored]
    shown = [name for name in parameters if name != series] or list(parameters)
    figure, panels = drawing.make_panels(len(shown), width_in=4.0)
    for panel, name in zip(panels, shown, strict=True):
        drawing.set_title(panel, SYMBOLS.get(name, name))
        if scored:
            _draw_parameter(panel, name, [(trial[name], trial["dev"]) for trial in scored], names)
    for panel in panels[1:]:
        panel.sharey(panels[0])
    drawing.set_axis_titles(
        figure,
        x="value tried; lines join the best trial of each value",
        y="development score, %",
    )
    if series and scored:
        kinds = sorted(set(names))
        drawing.add_legend(figure, {n: (drawing.colour_of(i), drawing.marker_of(i)) for i, n in enumerate(kinds)})
    return drawing.to_png(figure)


def _series(scored: Sequence[Trial], parameters: Sequence[str]) -> str:
    """Return the parameter that gives the colours, "" for none."""
    for name in parameters:
        values = {trial[name] for trial in scored}
        if any(isinstance(value, str) for value in values) and len(values) <= MOST_COLOURS:
            return name
    return ""


def _draw_parameter(panel: Axes, name: str, points: list[tuple[Any, float]], names: Sequence[str]) -> None:
    scale, kinds = Parameter.of(name, [value for value, _ in points]), sorted(set(names))
    low, high = scale.position(scale.levels[0]), scale.position(scale.levels[-1])
    width = scale.reach or 1.0
    # Side by side within 4 % of the panel, which is less than grids leave between two levels.
    step = 0.04 * width / len(kinds) if scale.is_grid else 0.0
    for index, kind in enumerate(kinds):
        shift = step * (index - (len(kinds) - 1) / 2)
        own = [(scale.position(v) + shift, dev) for (v, dev), own in zip(points, names, strict=True) if own == kind]
        _draw_series(panel, own, index, scale.is_grid)
    panel.set_xlim(low - 0.08 * width, high + 0.08 * width)
    ticks = scale.ticks(scale.levels, gap=0.07 if scale.is_grid else 0.2)
    panel.set_xticks([at for at, _ in ticks], [text[:LONGEST] for _, text in ticks])


def _draw_series(panel: Axes, points: list[tuple[float, float]], index: int, is_grid: bool) -> None:
    colour, marker = drawing.colour_of(index), drawing.marker_of(index)
    panel.plot(
        [x for x, _ in points],
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
        panel.plot(list(best), list(best.values()), color=colour, marker=marker, markersize=5.5, lw=1.4)
