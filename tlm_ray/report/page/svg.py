"""Draw small charts as inline SVG: elements, axes and panels. Colours are CSS classes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 10, 26  # edges of the frame within a panel
LINE = "M0 6h16"  # of a legend
MARKERS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "s": "M-3.6-3.6h7.2v7.2h-7.2z",
    "D": "M0-4.8l4.8 4.8-4.8 4.8-4.8-4.8z",
    "^": "M0-5l4.6 8.4h-9.2z",
    "v": "M0 5l4.6-8.4h-9.2z",
    "P": "M-1.6-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
}


def tag(name: str, *inside: str, **attributes: float | str) -> Markup:
    """Return an element; all text and values are escaped. `class_` gives class, `stroke_width` stroke-width."""
    said = "".join(f' {_attribute(key)}="{escape(number(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{said}>{join(inside)}</{name}>" if inside else f"<{name}{said}/>")


def join(parts: Iterable[str]) -> Markup:
    """Join texts, escaping those that are not markup."""
    return Markup("").join(parts)


def number(value: float | str) -> str:
    """Return a coordinate with one decimal, a tenth of a pixel."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _attribute(name: str) -> str:
    return name.removesuffix("_").replace("_", "-") if name != "viewBox" else name


def title(text: str) -> Markup:
    """Return a tooltip."""
    return tag("title", text)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis: a range of numbers along a side of a panel."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    """position and text"""

    def share(self, value: float) -> float:
        """Return the position of a number between the ends, 0 to 1."""
        return (value - self.low) / ((self.high - self.low) or 1.0)


def linear_axis(values: Sequence[float], *, margin: float = 0.06) -> Axis:
    """Return an axis with round ticks that covers some numbers; margin: free share at each end."""
    from matplotlib.ticker import MaxNLocator  # imported here, because it takes 0.3 s

    low, high = min(values), max(values)
    room = margin * ((high - low) or abs(high) or 1.0)
    low, high = low - room, high + room
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high)
    return Axis(low=low, high=high, ticks=[(t, f"{round(t, 10):g}") for t in map(float, ticks) if low <= t <= high])


def log_axis(values: Sequence[float], *, margin: float) -> Axis:
    """Return a log axis with ticks at powers of ten; margin: free decades at each end."""
    low, high = math.log10(min(values)) - margin, math.log10(max(values)) + margin
    steps = (1, 2, 5) if high - low < 2 else (1,)
    marks = [(m, e) for e in range(math.floor(low), math.ceil(high) + 1) for m in steps]
    found = [(math.log10(m) + e, f"{m}E{e}") for m, e in marks if low <= math.log10(m) + e <= high]
    return Axis(low=low, high=high, ticks=found[:: math.ceil(len(found) / 6)])


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A frame with two axes."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point, in pixels."""
        across = LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT)
        return across, TOP + (1 - self.y.share(y)) * (HEIGHT - TOP - BOTTOM)

    def draw(self, label: str, marks: Iterable[str]) -> Markup:
        """Return the panel with its content; label: text for screen readers."""
        frame = tag("g", *self._rules(), *self._ticks(), class_="frame")
        box = f"0 0 {WIDTH} {HEIGHT}"
        return tag("svg", frame, *marks, viewBox=box, role="img", aria_label=label)

    def _rules(self) -> list[Markup]:
        heights = [self.at(0, value)[1] for value, _ in self.y.ticks]
        return [tag("path", d=f"M{LEFT} {number(y)}H{WIDTH - RIGHT}") for y in heights]

    def _ticks(self) -> list[Markup]:
        across = [(self.at(value, 0)[0], text) for value, text in self.x.ticks]
        up = [(self.at(0, value)[1], text) for value, text in self.y.ticks]
        return [tag("text", text, x=x, y=HEIGHT - 8, text_anchor="middle") for x, text in across] + [
            tag("text", text, x=LEFT - 6, y=y + 4, text_anchor="end") for y, text in up
        ]

    def line(self, points: Sequence[tuple[float, float]], **attributes: str) -> Markup:
        """Return a line through points."""
        return path([self.at(*point) for point in points], **attributes)

    def level(self, y: float, inside: str, **attributes: str) -> Markup:
        """Return a horizontal line across the panel."""
        height = number(self.at(0, y)[1])
        return tag("path", inside, d=f"M{LEFT} {height}H{WIDTH - RIGHT}", **attributes)


def path(places: Sequence[tuple[float, float]], *inside: str, **attributes: str) -> Markup:
    """Return a line through pixel positions, rounded to half pixels."""
    return tag("path", *inside, d="M" + " ".join(f"{_half(x)} {_half(y)}" for x, y in places), **attributes)


def _half(value: float) -> str:
    return f"{round(2 * value) / 2:g}"


def marker(shape: str, x: float, y: float, *inside: str, class_: str) -> Markup:
    """Return a point's marker, by matplotlib's name of its shape."""
    return tag("path", *inside, d=MARKERS[shape], transform=f"translate({number(x)} {number(y)})", class_=class_)


def swatch(shape: str, class_: str) -> Markup:
    """Return a legend's marker, or a line for "-", or a dotted line for ":"."""
    dotted = "dotted " if shape == ":" else ""
    inside = tag("path", d=LINE, class_=dotted + class_) if shape in "-:" else marker(shape, 8, 6, class_=class_)
    return tag("svg", inside, viewBox="0 0 16 12", class_="swatch", aria_hidden="true")
