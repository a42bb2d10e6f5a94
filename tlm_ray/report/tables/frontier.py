"""Say which rows are the best that their time buys: the best on dev among those that take no longer."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from tlm_ray.report.statistics.comparison import difference_text, p_text
from tlm_ray.report.statistics.differences import Difference, corrected
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.results import ResultsData


def frontier(results: ResultsData, task: str) -> list[Cell]:
    """Return the cells of a task whose mean dev score is above that of every faster one, fastest first."""
    found: list[Cell] = []
    for cell in sorted((each for each in results.cells if each.task == task), key=lambda each: each.wall_s):
        if not found or _dev(cell) > _dev(found[-1]):
            found.append(cell)
    return found


def frontier_notes(results: ResultsData) -> list[str]:
    """Return a sentence per row on the frontier of each task: its minutes, its score, its gain over the one before.

    The p-values of all gains are corrected together (Holm).
    """
    lines = {task: frontier(results, task) for task in results.tasks}
    gains = [
        found
        for task, line in lines.items()
        for before, after in pairwise(line)
        for found in results.comparison.of(after.row, before.row)
        if found.tasks == (task,)
    ]
    told = {(each.tasks[0], each.row): each for each in corrected(gains)}
    return [_note(cell, results.split, told.get((task, cell.row))) for task, line in lines.items() for cell in line]


def _note(cell: Cell, split: str, gain: Difference | None) -> str:
    said = f"{cell.task}, {cell.wall_s / 60:.1f} minutes buy {cell.row}: {cell.mean:.1f} % on {split}"
    if gain is None:
        return said
    shown = "shown" if gain.is_shown and gain.mean > 0 else "not shown to be above"
    return f"{said}, {difference_text(gain)} from {gain.other}, p {p_text(gain.reported_p)}: {shown}"


def _dev(cell: Cell) -> float:
    scores: Sequence[float] = cell.scores if cell.split == "dev" else cell.dev_scores
    return fmean(scores)
