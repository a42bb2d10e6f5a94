"""Plot the development score over each parameter of a sweep, one panel per parameter."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from tlm_ray.report import drawing
from tlm_ray.report.parameters import Parameter
from tlm_ray.report.sweeps import Trial

SYMBOLS = {"k": "$K$", "rho1": r"$\rho_1$", "rho2": r"$\rho_2$"}
MOST_COLOURS = 6  # maximum values of a word parameter to distinguish by colour
LONGEST = 14  # maximum characters of a tick label


def sweep_figure(ordered: Sequence[Trial], parameters: Sequence[str]) -> bytes:
    """Return a PNG: development score over each varied parameter, one panel per parameter.

    Every point is a finished trial. The first word parameter with few values sets colours and markers. It has its own
    panel only if it is the only parameter. At a parameter with few values, colours are placed side by side. A line
    joins the best trial per value, which shows that value's potential. `tlm_ray.report.parameters` decides the
    positions.
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
    """Return the parameter that sets the colours; "" for none."""
    for name in parameters:
        values = {trial[name] for trial in scored}
        if any(isinstance(value, str) for value in values) and len(values) <= MOST_COLOURS:
            return name
    return ""


def _draw_parameter(panel: Axes, name: str, points: list[tuple[Any, float]], names: Sequence[str]) -> None:
    scale, kinds = Parameter.of(name, [value for value, _ in points]), sorted(set(names))
    low, high = scale.position(scale.levels[0]), scale.position(scale.levels[-1])
    width = scale.reach or 1.0
    # Within 4 % of the panel, which is less than the distance between two grid values.
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
