"""Say which rows are the best that their time buys: the best on dev among those that take no longer."""

from itertools import pairwise

from tlm_ray.report.statistics.comparison import tested, verdict_text
from tlm_ray.report.statistics.differences import corrected
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.grids import name_of, time_text
from tlm_ray.report.tables.results import ResultsData


def frontier_of(results: ResultsData, task: str) -> list[Cell]:
    """Return the cells of a task whose mean dev score no other reaches in as little time, fastest first."""
    found: list[Cell] = []
    own = [each for each in results.cells if each.task == task]
    for cell in sorted(own, key=lambda each: (each.wall_s, -each.dev)):
        if not found or cell.dev > found[-1].dev:
            found.append(cell)
    return found


def frontier_notes(results: ResultsData) -> list[str]:
    """Return a sentence per row on the frontier of each task: its time, its score, its gain over the one before.

    The p-values of all gains are corrected together (Holm), as a family of their own.
    """
    lines = {task: frontier_of(results, task) for task in results.tasks}
    gains = [
        found
        for task, line in lines.items()
        for before, after in pairwise(line)
        for found in results.comparison.of(after.row, before.row)
        if found.tasks == (task,)
    ]
    told = {
        (each.tasks[0], each.row): f"; {verdict_text(each, tested(gains), of='gains')}" for each in corrected(gains)
    }
    return [
        f"{task}: {time_text(cell.wall_s)} of training buy {name_of(cell)}, {cell.mean:.1f} % on {results.split}"
        + told.get((task, cell.row), "")
        for task, line in lines.items()
        for cell in line
    ]
