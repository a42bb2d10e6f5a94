"""The parameters of a sweep as axes: numbers, on a logarithmic scale where they span a lot, and words side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tlm_ray.report.page import svg
from tlm_ray.report.page.importance import MOST_LEVELS, is_number

# A parameter whose values span more than this factor, and whose middle one lies so near to the smallest, a share of
# the span, has a logarithmic scale. Of numbers drawn evenly the middle one lies at half, of decades below a tenth.
LOG_SPAN, LOG_MEDIAN = 20, 0.25
GAP = 0.09  # of an axis, between two ticks


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter's values and where they stand on its axis."""

    name: str
    levels: Sequence[Any]
    """all values, numbers by size"""
    scale: str
    """linear, log, log from 0, or words"""

    @classmethod
    def of(cls, name: str, values: Sequence[Any]) -> "Parameter":
        """Take a parameter's values from all trials."""
        if not all(map(is_number, values)):
            return cls(name=name, levels=sorted({str(value) for value in values}), scale="words")
        levels = sorted(set(values))
        log = "log from 0" if 0 in levels else "log"
        return cls(name=name, levels=levels, scale=log if _is_wide(levels) else "linear")

    def position(self, value: Any) -> float:
        """Return where a value stands."""
        if self.scale == "words":
            return self.levels.index(str(value))
        if self.scale == "log":
            return math.log10(value)
        if self.scale == "log from 0":
            return math.log10(1 + value / next(level for level in self.levels if level > 0))
        return float(value)

    @property
    def reach(self) -> float:
        """How far its values reach."""
        return self.position(self.levels[-1]) - self.position(self.levels[0])

    @property
    def is_grid(self) -> bool:
        """Whether it has few enough values to stand each by itself."""
        return self.scale == "words" or len(self.levels) <= MOST_LEVELS

    def axis(self, *, margin: float) -> svg.Axis:
        """Return its axis; margin: free at each end, a share."""
        low, high = self.position(self.levels[0]), self.position(self.levels[-1])
        room = margin * (self.reach or 1.0)
        marked = self.levels if self.is_grid else self._round(low, high)
        ticks: list[tuple[float, str]] = []
        for value in marked:
            at = self.position(value)
            if self.scale == "words" or not ticks or at - ticks[-1][0] >= GAP * self.reach:
                ticks.append((at, short(value)))
        return svg.Axis(low=low - room, high=high + room, ticks=ticks)

    def _round(self, low: float, high: float) -> list[float]:
        """Return round numbers within the values."""
        first, last = self.levels[0], self.levels[-1]
        if self.scale == "linear":
            return [value for value, _ in svg.linear_axis([first, last], margin=0.0).ticks]
        smallest = next(level for level in self.levels if level > 0)
        decades = range(math.floor(math.log10(smallest)), math.ceil(math.log10(last)) + 1)
        steps = (1, 2, 5) if high - low < 2 else (1,)
        candidates = [0.0, *(m * 10.0**e for e in decades for m in steps)]
        return [value for value in candidates if first <= value <= last]


def _is_wide(levels: Sequence[float]) -> bool:
    """Whether numbers, by size, span a lot and lie near their smaller end."""
    above = [value for value in levels if value > 0]
    spans = bool(above) and levels[0] >= 0 and above[-1] > LOG_SPAN * above[0]
    return spans and median(levels) - levels[0] < LOG_MEDIAN * (levels[-1] - levels[0])


def short(value: Any) -> str:
    """Return a value as it is read: numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
