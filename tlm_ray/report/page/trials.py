"""Draw the trials of a sweep, as charts and a table."""

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

QUANTILES = 5  # number of colours, from the worst fifth to the best
HIGH, WIDE, ROOM = 300, 760, 46  # size of parallel coordinates, in pixels, and the margin at their sides
CUT = 18  # maximum characters of a tick
SPREAD = 0.03  # share of an axis over which trials of the same grid value spread
GOLDEN = 0.618034


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A sweep's trials, best first, with their parameters."""

    all: Sequence[Mapping[str, Any]]
    """per trial: its parameters, "dev" (a score or None), and other facts"""
    names: Sequence[str]
    """names of the parameters"""

    @cached_property
    def scored(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Trials with a score and all parameters, with their numbers in the table."""
        known = [(number, trial) for number, trial in enumerate(self.all, start=1) if is_score(trial.get("dev"))]
        return [(number, trial) for number, trial in known if all(name in trial for name in self.names)]

    @cached_property
    def varied(self) -> list[Parameter]:
        """The parameters with more than one value."""
        found = [Parameter.of(name, [trial[name] for _, trial in self.scored]) for name in self.names]
        return [each for each in found if len(each.levels) > 1]

    @property
    def columns(self) -> list[str]:
        """The table's columns: parameters, the score, then other facts."""
        others = dict.fromkeys(name for trial in self.all for name in trial)
        return list(dict.fromkeys([*self.names, "dev", *others]))

    def text(self, trial: Mapping[str, Any], column: str) -> str:
        """Return a cell of the table."""
        value = trial.get(column)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return ABSENT
        return f"{value:.2f}" if column in SCORES and isinstance(value, float) else short(value)

    def importances(self) -> list[Importance]:
        """Return each parameter's importance."""
        rows = [([trial[name] for name in self.names], float(trial["dev"])) for _, trial in self.scored]
        return importances(rows, self.names)

    def scatter(self) -> Chart:
        """Return the score over each parameter, a point per trial; lines join the best trials per grid value."""
        panels = [(f"{p.name}{f', {p.scale}' if 'log' in p.scale else ''}", self._points(p)) for p in self.varied]
        notes = ["Development score in percent; one point per trial; lines join the best trial of each value."]
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
        """Return parallel coordinates, a line per trial; the best are drawn last, over the others."""
        axes = [(p.name, axis_of(p, margin=0.05)) for p in self.varied] + [("dev", self._scores)]
        places = [ROOM + i * (WIDE - 2 * ROOM) / (len(axes) - 1) for i in range(len(axes))]
        lines = [self._line(rank, axes, places) for rank in range(len(self.scored) - 1, -1, -1)]
        frame = [_upright(name, axis, x) for (name, axis), x in zip(axes, places, strict=True)]
        box = f"0 0 {WIDE} {HIGH}"
        label = "parallel coordinates: one line per trial"
        return svg.tag("svg", svg.tag("g", *lines, class_="lines"), *frame, viewBox=box, role="img", aria_label=label)

    def _line(self, rank: int, axes: Sequence[tuple[str, svg.Axis]], places: Sequence[float]) -> Markup:
        number, trial = self.scored[rank]
        values = [_place(p, number, trial) for p in self.varied] + [float(trial["dev"])]
        points = [(x, _height(axis, value)) for x, (_, axis), value in zip(places, axes, values, strict=True)]
        fifth = QUANTILES * rank // len(self.scored)
        said = svg.title(f"trial {number}: {trial['dev']:.2f}")
        return svg.path(points, said, class_=f"q{fifth}")


def is_score(value: Any) -> bool:
    """Return whether a trial has a score."""
    return isinstance(value, int | float) and math.isfinite(value)


def _place(parameter: Parameter, number: int, trial: Mapping[str, Any]) -> float:
    """Return a trial's position on a parameter's axis; trials of the same grid value are spread."""
    at = parameter.position(trial[parameter.name])
    return at + SPREAD * parameter.reach * _spread(number) if parameter.is_grid else at


def _height(axis: svg.Axis, value: float) -> float:
    return 26 + (1 - axis.share(value)) * (HIGH - 36)


def _upright(name: str, axis: svg.Axis, x: float) -> Markup:
    """Return a parameter's axis with its name and ticks."""
    ticks = [(_height(axis, value) + 4, text) for value, text in _cut(axis).ticks]
    head = svg.tag("text", name, x=x, y=14, text_anchor="middle", class_="name")
    line = svg.tag("path", d=f"M{svg.number(x)} 26V{HIGH - 10}")
    words = [svg.tag("text", text, x=x - 5, y=y, text_anchor="end") for y, text in ticks]
    return svg.tag("g", line, head, *words, class_="frame halo")


def _spread(number: int) -> float:
    """Return a trial's shift among trials of the same value, -0.5 to 0.5, far from that of the next trial."""
    return number * GOLDEN % 1 - 0.5


def _cut(axis: svg.Axis) -> svg.Axis:
    """Return an axis with shortened tick labels, so that they do not overlap."""
    most = max(4, CUT * 3 // max(3, len(axis.ticks)))
    ticks = [(at, text if len(text) <= most else f"{text[: most - 1]}…") for at, text in axis.ticks]
    return svg.Axis(low=axis.low, high=axis.high, ticks=ticks)
