"""Put matplotlib's figures into a page as SVG, with the page's colours."""

import io
import re
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from tlm_ray.report.figures import drawing

# The page's style sheet has a light and a dark value of each.
VARIABLES = {colour.lower(): f"var(--c{index})" for index, colour in enumerate(drawing.COLOURS)}
VARIABLES |= {colour.lower(): f"var(--q{index})" for index, colour in enumerate(reversed(drawing.SHADES))}
VARIABLES |= {
    drawing.INK: "var(--dim)",
    drawing.FAINT: "var(--paper)",
    drawing.GRID: "var(--line)",
    drawing.THREAD: "var(--line)",
    "#ffffff": "var(--back)",
    "#808080": "var(--paper)",  # the rims of Optuna's points
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
SERIES = re.compile(r"s\d+")  # the gid of a line that the legend highlights
REFERENCED = re.compile(r"\w+[0-9a-f]{10}")  # markers and clip paths; a hash by the label, unlike in other figures


def inline(figure: Figure, label: str) -> Markup:
    """Return a figure as an SVG element, the same for the same figure; label: unique in the page, for screen readers.

    Text stays text. All of it passes an XML writer, which escapes it.
    """
    stream = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(stream, format="svg", bbox_inches="tight", metadata=NO_METADATA)
    root = ElementTree.fromstring(stream.getvalue())
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.endswith(("}style", "}metadata"))]:
            element.remove(child)
        element.text, element.tail = ((text or "").strip("\n ") for text in (element.text, element.tail))
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = dict(filter(None, (_attribute(*pair) for pair in element.attrib.items())))
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _attribute(name: str, value: str) -> tuple[str, str] | None:
    """Return an attribute with page colours and tenths of points, or None if the page does not need it."""
    name = name.rpartition("}")[2]
    if name == "id" and not REFERENCED.fullmatch(value):
        return ("class", f"series {value}") if SERIES.fullmatch(value) else None
    if name in ("d", "x", "y", "transform"):
        return name, re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value).strip()
    if name == "style":
        value = re.sub(r"#[0-9a-f]{6}", lambda found: VARIABLES.get(found[0], found[0]), value)
        return name, re.sub(r"font: (?:\w+ )*([\d.]+px)[^;]*", r"font-size: \1", value)
    return name, value
