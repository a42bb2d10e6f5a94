"""Plot a reliability diagram: how often a model is right, over how certain it is."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from tlm_ray.evaluation.calibration import Bin
from tlm_ray.report.figures import drawing


def reliability_figure(bins: Sequence[Bin]) -> Figure:
    """Return a figure with a point per bin; points of a calibrated model are on the diagonal."""
    figure, (panel,) = drawing.make_panels(1, width_in=3.4, height_in=2.6)
    points = [(100 * each.confidence, 100 * each.accuracy) for each in bins]
    low = min([*(value for point in points for value in point), 90.0])
    panel.plot([low, 100], [low, 100], color=drawing.FAINT, linewidth=1.0, linestyle=":")
    panel.plot(*zip(*points, strict=True), color=drawing.COLOURS[0], marker="o", markersize=4.5, linewidth=1.0)
    panel.set_xlabel("confidence, %", fontsize=9, color=drawing.INK)
    panel.set_ylabel("accuracy, %", fontsize=9, color=drawing.INK)
    return figure
