"""How the rows of a table differ, in words: a table of differences from a chosen row, and a sentence a claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.report.differences import LEVEL, Difference, over_tasks
from tlm_ray.report.formats import ABSENT, markdown_rows

MEANING = (
    f"Bold: a score above those of all other rows with p < {LEVEL:g} (and none of the same trainings above it), a "
    f"difference with p < {LEVEL:g}. Intervals are of 95 %, over labelled rows (paired bootstrap) and seeds (Student's "
    "t), given the dev set, which chose settings, weights and shares."
)
SEEDS_LEFT_OUT = "Where two rows have too few trainings to see the spread over seeds by, their interval leaves it out."


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between a table's rows, and the row that the others are held against."""

    row: str
    """the table's row whose lead over the others is told"""
    differences: tuple[Difference, ...] = ()
    """of all rows on each task, in both directions"""

    @property
    def tasks(self) -> list[str]:
        """The tasks of all differences."""
        return list(dict.fromkeys(each.tasks[0] for each in self.differences))

    @property
    def leads(self) -> dict[str, list[Difference]]:
        """By the name of each other row, how far the chosen row lies above it, task by task."""
        found: dict[str, list[Difference]] = {}
        for each in self.differences:
            if each.row == self.row:
                found.setdefault(each.other, []).append(each)
        return found

    def is_best(self, row: str, task: str) -> bool:
        """Whether a row is shown to lie above every other row on a task, and none of the same runs above it."""
        own = [each for each in self.differences if each.row == row and each.tasks == (task,)]
        kin = [each for each in own if each.are_kin]
        others = [each for each in own if not each.are_kin]
        beaten = any(each.mean < 0 and each.is_shown for each in kin)
        return bool(others) and not beaten and all(each.mean > 0 and each.is_shown for each in others)

    def markdown(self) -> list[str]:
        """Return the lines of a GitHub Markdown table, a line per other row; none if there is nothing to compare."""
        if not self.leads:
            return []
        body = [[other, *map(_bold, found)] for other, found in self.lines]
        return markdown_rows([f"{self.row} less", *self.columns], body, right=range(1, len(self.columns) + 1))

    @property
    def columns(self) -> list[str]:
        """What the differences are of: each task and, of several, their mean."""
        return self.tasks + (["all"] if len(self.tasks) > 1 else [])

    @property
    def lines(self) -> list[tuple[str, list[Difference | None]]]:
        """Each other row and how far the chosen row lies above it, a difference a column; None where it lacks one."""
        return [(other, self._line(found)) for other, found in self.leads.items()]

    @property
    def meaning(self) -> str:
        """What bold and intervals mean."""
        left_out = [] if all(each.counts_seeds for each in self.differences) else [SEEDS_LEFT_OUT]
        return " ".join([MEANING, *left_out])

    def records(self) -> list[dict[str, Any]]:
        """Return every difference of the chosen row for programs, those over all tasks of the table included."""
        found = [each for _, line in self.lines for each in line if each is not None]
        return [
            {"row": each.row, "other": each.other, "tasks": list(each.tasks), "mean": each.mean}
            | {"low": each.interval[0], "high": each.interval[1], "p": each.p, "smallest": each.smallest}
            for each in found
        ]

    def _line(self, found: Sequence[Difference]) -> list[Difference | None]:
        """Return one row's differences by task, None where it lacks the task, then their mean if it lacks none."""
        by_task = {each.tasks[0]: each for each in found}
        own = [by_task.get(task) for task in self.tasks]
        whole = [over_tasks(found) if len(found) == len(self.tasks) else None] if len(self.tasks) > 1 else []
        return own + whole


def difference_text(found: Difference) -> str:
    """Return "+5.0 (2.5 to 7.4)"."""
    low, high = found.interval
    return f"{found.mean:+.1f} ({low:.1f} to {high:.1f})"


def _bold(found: Difference | None) -> str:
    if found is None:
        return ABSENT
    return f"**{difference_text(found)}**" if found.is_shown else difference_text(found)


def claim(found: Sequence[Difference]) -> str:
    """Say in a sentence how far one row lies above another, given their difference on each task."""
    whole = over_tasks(found) if len(found) > 1 else found[0]
    low, high = whole.interval
    alike = sum(each.mean * whole.mean > 0 for each in found)
    where = f" on {alike} of {len(found)} tasks, by the mean" if len(found) > 1 else ""
    side = "level with" if whole.mean == 0 else "above" if whole.mean > 0 else "below"
    shown = f"p {p_text(whole.p)}" if whole.is_shown else f"not shown, p {p_text(whole.p)}"
    if not whole.is_shown and whole.error:
        shown += f"; {whole.smallest:.1f} points would have been, four times in five"
    interval = f"95 % interval {low:.1f} to {high:.1f}"
    return f"{whole.row} {side} {whole.other}{where}: {whole.mean:+.1f}, {interval} ({shown})."


def p_text(p: float) -> str:
    """Return "< 0.001", "= 0.012" or "= 0.31"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"
