"""Plot the score of every row on a line of its own, so that no mark hides another."""

import textwrap

from matplotlib.figure import Figure

from tlm_ray.report.figures import drawing
from tlm_ray.report.tables.exports import SPLIT_NAMES
from tlm_ray.report.tables.results import ResultsData
from tlm_ray.report.tables.sentences import averages

WIDEST = 30  # characters per line of a row's name
LINE_IN = 0.17


def rows_figure(results: ResultsData) -> Figure:
    """Return a figure: the mean score of each row from top to bottom, in the order of the table.

    With one task, a bar is the standard deviation over seeds and faint marks are the seeds. With several, the score is
    the mean over the tasks, of the rows that have them all. The compared row's name is bold.
    """
    means = averages(results)
    names = {row: textwrap.wrap(drawing.plain(row), WIDEST) or [" "] for row in means}
    height_in = sum(LINE_IN * len(lines) + 0.14 for lines in names.values())
    figure, (panel,) = drawing.make_panels(1, width_in=4.8, height_in=height_in + 0.4)
    for place, (row, mean) in enumerate(means.items()):
        index, scores = results.rows.index(row), _seeds(results, row)
        colour, error = drawing.colour_of(index), results.of_row(row)[results.tasks[0]].std if scores else 0.0
        panel.plot(scores, [place] * len(scores), ".", color=colour, alpha=0.45, markersize=4)
        panel.errorbar(
            mean, place, xerr=error or None, color=colour, marker=drawing.marker_of(index), markersize=6.5, capsize=2.5
        )
    panel.set_yticks(range(len(names)), ["\n".join(lines) for lines in names.values()])
    for label, row in zip(panel.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if row == results.view.against else "normal")
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set_xlabel(f"{SPLIT_NAMES[results.split].lower()} score, %", fontsize=9, color=drawing.INK)
    panel.grid(axis="x", color=drawing.GRID, linewidth=0.8)
    return figure


def _seeds(results: ResultsData, row: str) -> list[float]:
    """Return the scores of a row's seeds, [] for a single one or several tasks."""
    scores = list(results.of_row(row)[results.tasks[0]].scores)
    return scores if len(results.tasks) == 1 and len(scores) > 1 else []
