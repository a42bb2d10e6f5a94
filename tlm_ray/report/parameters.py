"""Place the parameters of a sweep on axes: numbers on a linear or log scale, words at equal distances."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MOST_LEVELS = 10  # a parameter with more distinct values was sampled, not taken from a grid
# The scale is logarithmic if the values span more than the factor LOG_SPAN and their median lies in the lowest
# LOG_MEDIAN of the span. The median of uniform samples lies at 0.5; of log-uniform samples over decades, below 0.1.
LOG_SPAN, LOG_MEDIAN = 20, 0.25


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter's values and their positions on its axis."""

    name: str
    levels: Sequence[Any]
    """all distinct values, numbers in ascending order"""
    scale: str
    """linear, log, log from 0, or words"""

    @classmethod
    def of(cls, name: str, values: Sequence[Any]) -> "Parameter":
        """Create a parameter from its values in all trials."""
        if not all(map(is_number, values)):
            return cls(name=name, levels=sorted({str(value) for value in values}), scale="words")
        levels = sorted(set(values))
        log = "log from 0" if 0 in levels else "log"
        return cls(name=name, levels=levels, scale=log if _is_wide(levels) else "linear")

    def position(self, value: Any) -> float:
        """Return the position of a value."""
        if self.scale == "words":
            return self.levels.index(str(value))
        if self.scale == "log":
            return math.log10(value)
        if self.scale == "log from 0":
            return math.log10(1 + value / next(level for level in self.levels if level > 0))
        return float(value)

    @property
    def reach(self) -> float:
        """The distance between the first and last value."""
        return self.position(self.levels[-1]) - self.position(self.levels[0])

    @property
    def is_grid(self) -> bool:
        """Whether it has few enough values for a tick at each."""
        return self.scale == "words" or len(self.levels) <= MOST_LEVELS

    def ticks(self, marked: Sequence[Any], *, gap: float) -> list[tuple[float, str]]:
        """Return positions and labels of some values, without those too close to the previous one.

        gap: minimum distance as a share of the axis; words always keep their ticks.
        """
        found: list[tuple[float, str]] = []
        for value in marked:
            at = self.position(value)
            if self.scale == "words" or not found or at - found[-1][0] >= gap * self.reach:
                found.append((at, short(value)))
        return found


def _is_wide(levels: Sequence[float]) -> bool:
    """Return whether ascending numbers span a large factor with a median near the smallest."""
    above = [value for value in levels if value > 0]
    spans = bool(above) and levels[0] >= 0 and above[-1] > LOG_SPAN * above[0]
    return spans and median(levels) - levels[0] < LOG_MEDIAN * (levels[-1] - levels[0])


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def short(value: Any) -> str:
    """Return a value as text, a float with six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
