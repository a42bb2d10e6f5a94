"""Draw parameters of a sweep as axes."""

import math

from tlm_ray.report.page import svg
from tlm_ray.report.parameters import Parameter

GAP = 0.09  # minimum pixels between two ticks of an axis


def axis_of(parameter: Parameter, *, margin: float) -> svg.Axis:
    """Return a parameter's axis; margin: free share at each end."""
    low, high = parameter.position(parameter.levels[0]), parameter.position(parameter.levels[-1])
    room = margin * (parameter.reach or 1.0)
    marked = parameter.levels if parameter.is_grid else _round(parameter, low, high)
    return svg.Axis(low=low - room, high=high + room, ticks=parameter.ticks(marked, gap=GAP))


def _round(parameter: Parameter, low: float, high: float) -> list[float]:
    """Return round numbers within a parameter's range."""
    first, last = parameter.levels[0], parameter.levels[-1]
    if parameter.scale == "linear":
        return [value for value, _ in svg.linear_axis([first, last], margin=0.0).ticks]
    smallest = next(level for level in parameter.levels if level > 0)
    decades = range(math.floor(math.log10(smallest)), math.ceil(math.log10(last)) + 1)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    candidates = [0.0, *(m * 10.0**e for e in decades for m in steps)]
    return [value for value in candidates if first <= value <= last]
