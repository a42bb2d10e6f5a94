"""Development score against each parameter of a sweep, one panel a parameter."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from tlm_ray.report import drawing
from tlm_ray.report.sweeps import Trial

SYMBOLS = {"k": "$K$", "rho1": r"$\rho_1$", "rho2": r"$\rho_2$"}
MOST_LEVELS = 10  # with more distinct values than this a parameter was drawn, not taken from a grid
MOST_COLOURS = 6  # values of a parameter of words that are told apart by colour
WIDE = 30.0  # times the least number above 0 from which on numbers are set by their logarithm
LONGEST = 14  # characters of a word at a tick


def sweep_figure(ordered: Sequence[Trial], parameters: Sequence[str]) -> bytes:
    """Return a PNG: development score against each parameter that was varied, one panel each.

    Every point is a trial. The first parameter of words, of few values, gives the colours and markers; where it is not
    alone it has no panel of its own. Where a parameter took few values, the colours stand side by side at each, and a
    line joins the best trial of each value: what that value can reach when the others are chosen well. Failed trials
    are left out. Numbers that lie far apart are set by log(1 + value / least).
    """
    scored = [trial for trial in ordered if trial["dev"] is not None]
    series = _series(scored, parameters)
    names = [str(trial[series]) if series else "" for trial in scored]
    shown = [name for name in parameters if name != series] or list(parameters)
    figure, panels = drawing.make_panels(len(shown), width_in=4.0)
    for panel, name in zip(panels, shown, strict=True):
        drawing.set_title(panel, SYMBOLS.get(name, name))
        if scored:
            _draw_parameter(panel, [(trial[name], trial["dev"]) for trial in scored], names)
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


class _Scale:
    """Where a parameter's values stand: numbers by size, words one beside the other."""

    def __init__(self, values: Sequence[Any]):
        self.words: list[str] = (
            [] if all(isinstance(v, int | float) for v in values) else sorted({str(v) for v in values})
        )
        self.levels: list[Any] = self.words or sorted(set(values))
        positive = [float(value) for value in self.levels if not self.words and float(value) > 0]
        wide = bool(positive) and float(self.levels[0]) >= 0 and positive[-1] > WIDE * positive[0]
        self.least = positive[0] if wide else 0.0

    def place(self, value: Any) -> float:
        if self.words:
            return float(self.words.index(str(value)))
        return math.log10(1 + value / self.least) if self.least else float(value)

    @property
    def is_grid(self) -> bool:
        return bool(self.words) or len(self.levels) <= MOST_LEVELS

    def ticks(self, gap: float) -> dict[float, str]:
        """Return places with their labels, leaving out those that would run into the one before."""
        chosen: dict[float, str] = {}
        for value in self.levels:
            place = self.place(value)
            if not chosen or place - max(chosen) >= gap:
                chosen[place] = value[:LONGEST] if isinstance(value, str) else f"{value:.4g}"
        return chosen


def _draw_parameter(panel: Axes, points: list[tuple[Any, float]], names: Sequence[str]) -> None:
    scale, kinds = _Scale([value for value, _ in points]), sorted(set(names))
    low, high = scale.place(scale.levels[0]), scale.place(scale.levels[-1])
    width = (high - low) or 1.0
    # Side by side within 4 % of the panel, which is less than grids leave between two levels.
    step = 0.04 * width / len(kinds) if scale.is_grid else 0.0
    for index, kind in enumerate(kinds):
        shift = step * (index - (len(kinds) - 1) / 2)
        own = [(scale.place(v) + shift, dev) for (v, dev), name in zip(points, names, strict=True) if name == kind]
        _draw_series(panel, own, index, scale.is_grid)
    panel.set_xlim(low - 0.08 * width, high + 0.08 * width)
    ticks = scale.ticks((0.07 if scale.is_grid else 0.2) * width)
    panel.set_xticks(list(ticks), list(ticks.values()))


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
