"""Say how far each row is above the best of some rows, on the mean of several tasks."""

from collections.abc import Sequence
from dataclasses import replace

from tlm_ray.report.statistics.comparison import tested, verdict_text
from tlm_ray.report.statistics.differences import Difference, corrected, over_tasks
from tlm_ray.report.tables.results import ResultsData


def best_of_notes(results: ResultsData, rows: Sequence[str], *, name: str) -> list[str]:
    """Return a sentence per other row: its mean difference from the one of `rows` that is best on each task's dev set.

    name: what to call that one. Rows that lack a task are left out; one task has no sentence. The p-values are
    corrected together (Holm), as a family of their own.
    """
    best = {task: _best(results, rows, task) for task in results.tasks}
    if len(best) < 2 or not all(best.values()):
        return []
    others = [row for row in dict.fromkeys(cell.row for cell in results.cells) if row not in rows]
    found = [replace(over_tasks(own), other=name) for row in others if (own := _differences(results, row, best))]
    return [
        f"Mean of {len(best)} tasks: {each.row} {verdict_text(each, tested(found), of='differences')}"
        for each in corrected(found)
    ]


def _best(results: ResultsData, rows: Sequence[str], task: str) -> str:
    """Return the row that is best on a task's dev set, the first of equals; "" without any."""
    cells = [cell for cell in results.cells if cell.task == task and cell.row in rows]
    return max(cells, key=lambda cell: cell.dev).row if cells else ""


def _differences(results: ResultsData, row: str, best: dict[str, str]) -> list[Difference]:
    """Return a row's differences from the best one of each task; [] if it lacks a task."""
    pairs = [each for other in set(best.values()) for each in results.comparison.of(row, other)]
    own = {each.tasks[0]: each for each in pairs if best[each.tasks[0]] == each.other}
    return [own[task] for task in best] if len(own) == len(best) else []
