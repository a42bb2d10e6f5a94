"""The trials of a sweep as drawings and as a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from tlm_ray.report.formats import ABSENT
from tlm_ray.report.page import svg
from tlm_ray.report.page.axes import axis_of
from tlm_ray.report.page.charts import Chart
from tlm_ray.report.page.importance import Importance, importances
from tlm_ray.report.parameters import Parameter, short
from tlm_ray.report.sweeps import SCORES

QUANTILES = 5  # kinds of colours, from the worst fifth to the best
HIGH, WIDE, ROOM = 300, 760, 46  # of parallel coordinates, in pixels, and what is free at their sides
CUT = 18  # characters of a tick
SPREAD = 0.03  # of an axis, which the trials of one value of a grid share
GOLDEN = 0.618034


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A sweep's trials, the best first, and what they tried."""

    all: Sequence[Mapping[str, Any]]
    """of each its parameters, "dev", a score or None, and whatever else is known"""
    names: Sequence[str]
    """of the parameters"""

    @cached_property
    def scored(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Those that have a score and all parameters, with their numbers in the table."""
        known = [(number, trial) for number, trial in enumerate(self.all, start=1) if is_score(trial.get("dev"))]
        return [(number, trial) for number, trial in known if all(name in trial for name in self.names)]

    @cached_property
    def varied(self) -> list[Parameter]:
        """The parameters that took more than one value."""
        found = [Parameter.of(name, [trial[name] for _, trial in self.scored]) for name in self.names]
        return [each for each in found if len(each.levels) > 1]

    @property
    def columns(self) -> list[str]:
        """The table's: parameters, the score, then what else a trial has."""
        others = dict.fromkeys(name for trial in self.all for name in trial)
        return list(dict.fromkeys([*self.names, "dev", *others]))

    def text(self, trial: Mapping[str, Any], column: str) -> str:
        """Return a cell of the table."""
        value = trial.get(column)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return ABSENT
        return f"{value:.2f}" if column in SCORES and isinstance(value, float) else short(value)

    def importances(self) -> list[Importance]:
        """Return how much each parameter decides."""
        rows = [([trial[name] for name in self.names], float(trial["dev"])) for _, trial in self.scored]
        return importances(rows, self.names)

    def scatter(self) -> Chart:
        """Return the score over each parameter, a point a trial; lines join the best of each value of a grid."""
        panels = [(f"{p.name}{f', {p.scale}' if 'log' in p.scale else ''}", self._points(p)) for p in self.varied]
        notes = ["Development score in percent; a point is a trial, a line joins the best trial of each value."]
        return Chart(heading="Score over each parameter", panels=panels, notes=notes)

    def _points(self, parameter: Parameter) -> Markup:
        panel = svg.Panel(x=_cut(axis_of(parameter, margin=0.07)), y=self._scores)
        best: dict[float, float] = {}
        dots = []
        for number, trial in self.scored:
            at, dev = parameter.position(trial[parameter.name]), float(trial["dev"])
            best[at] = max(dev, best.get(at, dev))
            x, y = panel.at(_place(parameter, number, trial), dev)
            dots.append(svg.tag("circle", svg.title(f"trial {number}: {dev:.2f}"), cx=x, cy=y, r=3))
        line = [panel.line(sorted(best.items()), class_="c0")] if parameter.is_grid else []
        return panel.draw(f"score over {parameter.name}", [svg.tag("g", *dots, class_="dots"), *line])

    @property
    def _scores(self) -> svg.Axis:
        return svg.linear_axis([float(trial["dev"]) for _, trial in self.scored])

    def parallel(self) -> Markup:
        """Return a line a trial across all parameters to its score; the best are drawn last, over the others."""
        axes = [(p.name, axis_of(p, margin=0.05)) for p in self.varied] + [("dev", self._scores)]
        places = [ROOM + i * (WIDE - 2 * ROOM) / (len(axes) - 1) for i in range(len(axes))]
        lines = [self._line(rank, axes, places) for rank in range(len(self.scored) - 1, -1, -1)]
        frame = [_upright(name, axis, x) for (name, axis), x in zip(axes, places, strict=True)]
        box = f"0 0 {WIDE} {HIGH}"
        label = "parallel coordinates: a line a trial"
        return svg.tag("svg", svg.tag("g", *lines, class_="lines"), *frame, viewBox=box, role="img", aria_label=label)

    def _line(self, rank: int, axes: Sequence[tuple[str, svg.Axis]], places: Sequence[float]) -> Markup:
        number, trial = self.scored[rank]
        values = [_place(p, number, trial) for p in self.varied] + [float(trial["dev"])]
        points = [(x, _height(axis, value)) for x, (_, axis), value in zip(places, axes, values, strict=True)]
        fifth = QUANTILES * rank // len(self.scored)
        said = svg.title(f"trial {number}: {trial['dev']:.2f}")
        return svg.path(points, said, class_=f"q{fifth}")


def is_score(value: Any) -> bool:
    """Whether a trial has come to a score."""
    return isinstance(value, int | float) and math.isfinite(value)


def _place(parameter: Parameter, number: int, trial: Mapping[str, Any]) -> float:
    """Return where a trial stands on a parameter's axis; the trials of one value of a grid stand side by side."""
    at = parameter.position(trial[parameter.name])
    return at + SPREAD * parameter.reach * _spread(number) if parameter.is_grid else at


def _height(axis: svg.Axis, value: float) -> float:
    return 26 + (1 - axis.share(value)) * (HIGH - 36)


def _upright(name: str, axis: svg.Axis, x: float) -> Markup:
    """Return a parameter's axis with its name and its ticks."""
    ticks = [(_height(axis, value) + 4, text) for value, text in _cut(axis).ticks]
    head = svg.tag("text", name, x=x, y=14, text_anchor="middle", class_="name")
    line = svg.tag("path", d=f"M{svg.number(x)} 26V{HIGH - 10}")
    words = [svg.tag("text", text, x=x - 5, y=y, text_anchor="end") for y, text in ticks]
    return svg.tag("g", line, head, *words, class_="frame halo")


def _spread(number: int) -> float:
    """Return a trial's shift within what its value of a grid has, -0.5 to 0.5, that of the next far from it."""
    return number * GOLDEN % 1 - 0.5


def _cut(axis: svg.Axis) -> svg.Axis:
    """Return an axis whose long words are cut, so that they do not run into each other."""
    most = max(4, CUT * 3 // max(3, len(axis.ticks)))
    ticks = [(at, text if len(text) <= most else f"{text[: most - 1]}…") for at, text in axis.ticks]
    return svg.Axis(low=axis.low, high=axis.high, ticks=ticks)
