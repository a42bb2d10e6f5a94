"""Write names beside points, without overlapping other names, points or error bars."""

import math
from collections.abc import Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from tlm_ray.report.drawing import Point

# Candidate positions of a name around its point, best first: offset in typographic points, alignment.
# Directly above and below, the offset counts from the end of the error bar.
PLACES = (
    ((7, 0), "left", "center"),
    ((-7, 0), "right", "center"),
    ((0, -5), "center", "top"),
    ((0, 5), "center", "bottom"),
    ((6, 5), "left", "bottom"),
    ((6, -5), "left", "top"),
    ((-6, 5), "right", "bottom"),
    ((-6, -5), "right", "top"),
)
MARGIN_PX = 3.0  # margin around a name


def name_points(panel: Axes, points: Sequence[Point], named: Sequence[Point]) -> dict[str, Annotation]:
    """Write the names of `named` where there is room; return the names written.

    A name is written once, at the first of its points with room. No name covers one of `points`, an error bar or an
    earlier name, or leaves the panel. The figure must have been laid out, because positions are in pixels.
    """
    taken = [_box_of(panel, point) for point in points]
    notes: dict[str, Annotation] = {}
    for point, place in product(named, PLACES):
        if point.name in notes:
            continue
        note = _try_place(panel, point, place, taken)
        if note is not None:
            notes[point.name] = note
            taken.append(note.get_window_extent())
    return notes


def _box_of(panel: Axes, point: Point) -> Bbox:
    half_px = 5.0 if point.hollow else 7.0  # of the marker
    x, low = panel.transData.transform((point.x, point.y - point.error))
    _, high = panel.transData.transform((point.x, point.y + point.error))
    return Bbox.from_extents(x - half_px, low - half_px, x + half_px, high + half_px)


def _try_place(
    panel: Axes, point: Point, place: tuple[tuple[int, int], str, str], taken: list[Bbox]
) -> Annotation | None:
    (right, up), horizontal, vertical = place
    end = math.copysign(point.error, up) if right == 0 else 0.0
    note = panel.annotate(
        point.name,
        (point.x, point.y + end),
        xytext=(right, up),
        textcoords="offset points",
        horizontalalignment=horizontal,
        verticalalignment=vertical,
        color=point.colour,
        fontsize=7.5 if point.hollow else 9,
    )
    note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])  # above grid lines
    note.set_in_layout(False)  # a name must not change the layout in which its position was found
    box = note.get_window_extent().padded(MARGIN_PX)
    room = panel.get_window_extent()
    is_inside = room.contains(box.x0, box.y0) and room.contains(box.x1, box.y1)
    if is_inside and not box.count_overlaps(taken):
        return note
    note.remove()
    return None
