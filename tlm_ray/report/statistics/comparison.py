"""Compare the rows of a table: a table of differences from a chosen row, and a sentence per claim."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tlm_ray.report.formats import ABSENT, markdown_rows
from tlm_ray.report.statistics.differences import LEVEL, Difference, corrected, over_tasks

MEANING = (
    f"Bold score: above all rows of other trainings with p < {LEVEL:g}, and not shown to be below a row of the same "
    f"ones. Bold difference: p < {LEVEL:g}. The p of differences {{}}. Intervals are 95 % confidence intervals of one "
    "difference, over labelled rows (jackknife) and seeds (Student's t). Settings and weights tuned on dev are taken "
    "as fixed."
)
SEEDS_LEFT_OUT = (
    "Where two rows have too few trainings to estimate the spread over seeds, their interval omits it. "
    "Such a difference is not tested."
)
NUMBERS = ("mean", "low", "high", "p", "p_corrected", "smallest")
NOT_TESTED = "not tested: too few trainings; give --seeds 3"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between a table's rows, and the row that the others are compared with.

    All reported differences that are tested, in the table and in sentences, are corrected as one family (Holm).
    """

    row: str
    """the table's row that is compared with all others"""
    differences: tuple[Difference, ...] = ()
    """of all rows on each task, in both directions"""
    expected: tuple[tuple[str, str], ...] = ()
    """further pairs of rows, reported by the mean over tasks"""

    @property
    def tasks(self) -> list[str]:
        """The tasks of all differences."""
        return list(dict.fromkeys(each.tasks[0] for each in self.differences))

    @property
    def leads(self) -> dict[str, list[Difference]]:
        """The corrected differences of the chosen row from each other row, task by task."""
        return {pair[1]: list(map(self._told, own)) for pair, own in self._pairs.items() if pair[0] == self.row}

    def of(self, row: str, other: str) -> list[Difference]:
        """Return the differences of a row from another, by task; [] if they share no task."""
        return self._pairs.get((row, other), [])

    def whole(self, row: str, other: str) -> Difference:
        """Return the mean of a pair's differences over their common tasks, corrected if it is reported."""
        return self._told(_whole(self.of(row, other)))

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], list[Difference]]:
        found: dict[tuple[str, str], list[Difference]] = {}
        for each in self.differences:
            found.setdefault((each.row, each.other), []).append(each)
        return found

    @cached_property
    def _family(self) -> dict[Any, Difference]:
        """All reported differences, each once, corrected."""
        leads = [own for pair, own in self._pairs.items() if pair[0] == self.row]
        pairs = [own for pair in self.expected if (own := self.of(*pair))]
        told = [each for own in leads for each in (*own, _whole(own))] + list(map(_whole, pairs))
        family = {_key(each): each for each in told}
        return dict(zip(family, corrected(list(family.values())), strict=True))

    def _told(self, found: Difference) -> Difference:
        same = self._family.get(_key(found), found)
        return replace(found, holm=same.holm, among=same.among)

    def is_best(self, row: str, task: str) -> bool:
        """Return whether a row is significantly above all rows of other trainings, and below none of the same ones.

        A difference that is reported counts with its corrected p, so that no page calls it shown and not shown.
        """
        own = [self._told(each) for each in self.differences if each.row == row and each.tasks == (task,)]
        kin = [each for each in own if each.are_kin]
        others = [each for each in own if not each.are_kin]
        beaten = any(each.mean < 0 and each.is_shown for each in kin)
        return bool(others) and not beaten and all(each.mean > 0 and each.is_shown for each in others)

    def markdown(self) -> list[str]:
        """Return the lines of a GitHub Markdown table, a line per other row; [] if there is nothing to compare."""
        if not self.leads:
            return []
        body = [[other, *map(_bold, found)] for other, found in self.lines]
        return markdown_rows([f"{self.row} minus", *self.columns], body, right=range(1, len(self.columns) + 1))

    @property
    def columns(self) -> list[str]:
        """Column names: each task and, for several, their mean."""
        return self.tasks + (["all"] if len(self.tasks) > 1 else [])

    @property
    def lines(self) -> list[tuple[str, list[Difference | None]]]:
        """Each other row with its differences from the chosen row, one per column; None for a missing task."""
        return [(other, self._line(other, found)) for other, found in self.leads.items()]

    @property
    def meaning(self) -> str:
        """The meaning of bold and of intervals."""
        count = tested(self._family.values())
        family = f"are corrected for all {count} reported here (Holm)" if count > 1 else "is not corrected"
        left_out = [] if all(each.counts_seeds for each in self.differences) else [SEEDS_LEFT_OUT]
        return " ".join([MEANING.format(family), *left_out])

    def records(self) -> list[dict[str, Any]]:
        """Return every difference of the chosen row as plain data, including those over all tasks."""
        found = [each for _, line in self.lines for each in line if each is not None]
        return [{"row": each.row, "other": each.other, "tasks": list(each.tasks)} | numbers(each) for each in found]

    def _line(self, other: str, found: Sequence[Difference]) -> list[Difference | None]:
        """Return one row's differences by task, None for a missing task, then their mean if none is missing."""
        by_task = {each.tasks[0]: each for each in found}
        own = [by_task.get(task) for task in self.tasks]
        whole = self.whole(self.row, other) if len(found) == len(self.tasks) else None
        return own + ([whole] if len(self.tasks) > 1 else [])


def _whole(found: Sequence[Difference]) -> Difference:
    return over_tasks(found) if len(found) > 1 else found[0]


def _key(found: Difference) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the key of a difference, the same in both directions."""
    return frozenset((found.row, found.other)), found.tasks


def numbers(found: Difference | None) -> dict[str, float | None]:
    """Return a difference as plain data; p and the smallest one are None where it is not tested, all without one."""
    if found is None:
        return dict.fromkeys(NUMBERS)
    of_test = (found.p, found.reported_p, found.smallest) if found.counts_seeds else (None, None, None)
    return dict(zip(NUMBERS, (found.mean, *found.interval, *of_test), strict=True))


def verdict_text(found: Difference, family: int, *, of: str) -> str:
    """Return a difference from a row with its interval, its p and whether it is shown, or that it is not tested.

    family: how many were corrected together, which the text calls `of`.
    """
    if not found.counts_seeds:
        return f"{difference_text(found)} from {found.other}, {NOT_TESTED}"
    words = "shown" if found.mean > 0 else "shown to be below"
    among = f" among {family} {of}" if family > 1 else ""
    verdict = words if found.is_shown else "not shown"
    return f"{difference_text(found)} from {found.other}, {p_or_why(found)}{among}: {verdict}"


def difference_text(found: Difference) -> str:
    """Return "+5.0 (2.5 to 7.4)"."""
    low, high = found.interval
    return f"{found.mean:+.1f} ({low:.1f} to {high:.1f})"


def _bold(found: Difference | None) -> str:
    if found is None:
        return ABSENT
    return f"**{difference_text(found)}**" if found.is_shown else difference_text(found)


def claim(found: Sequence[Difference], whole: Difference) -> str:
    """Return a sentence on the difference between two rows, from their differences by task and the mean."""
    low, high = whole.interval
    alike = sum(each.mean * whole.mean > 0 for each in found)
    where = f" on {alike} of {len(found)} tasks, by the mean" if len(found) > 1 else ""
    side = "level with" if whole.mean == 0 else "above" if whole.mean > 0 else "below"
    shown = "" if whole.is_shown or not whole.counts_seeds else "not shown, "
    interval = f"{interval_name(whole)} {low:.1f} to {high:.1f}"
    said = f"{shown}{p_or_why(whole)}{needed_text(whole)}"
    return f"{whole.row} {side} {whole.other}{where}: {whole.mean:+.1f}, {interval} ({said})."


def interval_name(found: Difference) -> str:
    """Return what a difference's interval is called, which tells whether it counts seeds."""
    return "95 % interval" if found.counts_seeds else "95 % interval over labelled rows"


def p_or_why(found: Difference) -> str:
    """Return the p of a difference, or why it is not tested."""
    return f"p {p_text(found.reported_p)}" if found.counts_seeds else NOT_TESTED


def needed_text(found: Difference) -> str:
    """Return the difference needed for 80 % power, after "; "; "" if it is shown, or not tested."""
    if found.is_shown or not (found.counts_seeds and found.error):
        return ""
    return f"; {found.smallest:.1f} points are needed for 80 % power"


def tested(found: Iterable[Difference]) -> int:
    """Count the differences that are tested, which are corrected together."""
    return sum(each.counts_seeds for each in found)


def p_text(p: float) -> str:
    """Return "< 0.001", "= 0.012" or "= 0.31"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"
