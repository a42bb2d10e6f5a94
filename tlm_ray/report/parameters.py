"""The parameters of a sweep as axes: numbers, on a logarithmic scale where they span a lot, and words side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MOST_LEVELS = 10  # with more distinct values than this a parameter was drawn, not taken from a grid
# A parameter whose values span more than this factor, and whose middle one lies so near to the smallest, a share of
# the span, has a logarithmic scale. Of numbers drawn evenly the middle one lies at half, of decades below a tenth.
LOG_SPAN, LOG_MEDIAN = 20, 0.25


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

    def ticks(self, marked: Sequence[Any], *, gap: float) -> list[tuple[float, str]]:
        """Return places of some values with their labels, without those that would run into the one before.

        gap: the least between two, a share of the axis; words stand one beside the other and all have theirs.
        """
        found: list[tuple[float, str]] = []
        for value in marked:
            at = self.position(value)
            if self.scale == "words" or not found or at - found[-1][0] >= gap * self.reach:
                found.append((at, short(value)))
        return found


def _is_wide(levels: Sequence[float]) -> bool:
    """Whether numbers, by size, span a lot and lie near their smaller end."""
    above = [value for value in levels if value > 0]
    spans = bool(above) and levels[0] >= 0 and above[-1] > LOG_SPAN * above[0]
    return spans and median(levels) - levels[0] < LOG_MEDIAN * (levels[-1] - levels[0])


def is_number(value: Any) -> bool:
    """Whether a value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def short(value: Any) -> str:
    """Return a value as it is read: numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
