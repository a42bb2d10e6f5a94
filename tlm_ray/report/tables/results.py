"""The results of an experiment, the source of its tables, figures and files."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from tlm_ray.report.paper import TABLE_2, PaperTable, ReportedRow
from tlm_ray.report.statistics.comparison import Comparison, claim
from tlm_ray.report.statistics.differences import Difference
from tlm_ray.report.tables.cells import Cell, check_cells


@dataclass(frozen=True, kw_only=True)
class View:
    """How to present an experiment's scores."""

    against: str = ""
    """the row to compare with all others; "" for none"""
    split: str = "test"
    """the split of the scores: test, or dev for experiments that choose settings"""
    varied: str = ""
    """the recipe's varied number, such as rho2, for the figure's x axis; "" for the cost"""
    cost: Literal["FLOPs", "minutes"] = "FLOPs"
    """the figure's x axis where no number is varied"""
    paper: PaperTable = TABLE_2
    """the paper's table, printed below if it has the same split"""
    expected: Sequence[tuple[str, str]] = ()
    """pairs of rows; the first was expected to be better, before anything ran"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a pair of rows, of which the first was expected to be better."""

    above: str
    below: str
    found: tuple[Difference, ...]
    """differences of the first row from the second, by task"""
    whole: Difference | None
    """their mean, corrected together with all reported differences; None if the rows share no task"""
    paper: str
    """the title of the paper's table"""
    reported: tuple[float, ...]
    """the paper's differences by task; empty if its table lacks one of the rows"""

    @property
    def word(self) -> str:
        """The verdict: shown, not shown, the reverse is shown, or not tested."""
        if self.whole is not None and not self.whole.counts_seeds:
            return "not tested"
        if self.whole is None or not self.whole.is_shown:
            return "not shown"
        return "shown" if self.whole.mean > 0 else "the reverse is shown"

    @property
    def sentence(self) -> str:
        """A sentence on this result and the paper's; only for rows that share a task."""
        assert self.whole is not None
        said = f"Expected, {self.word}: {claim(self.found, self.whole)}"
        return f"{said} {self.paper_words}" if self.reported else said

    @property
    def paper_words(self) -> str:
        """The paper's result on this pair; only where its table has both rows."""
        alike = f"above on {sum(lead > 0 for lead in self.reported)} of {len(self.reported)} tasks"
        return f"{self.paper} of the paper: {fmean(self.reported):+.1f}, {alike}."


@dataclass(frozen=True, kw_only=True)
class ResultsData:
    """An experiment's cells, the differences between its rows, and the view to present them.

    ValueError if the cells do not form one table.
    """

    cells: Sequence[Cell]
    """in the order of the table's rows"""
    view: View = View()
    """how to present them"""
    differences: Sequence[Difference] = ()
    """of all rows on each task, in both directions"""
    notes: Sequence[str] = ()
    """remarks for readers"""

    def __post_init__(self) -> None:
        check_cells(self.cells)

    @cached_property
    def comparison(self) -> Comparison:
        """The differences of the view's row from the others."""
        expected = tuple((above, below) for above, below in self.view.expected)
        return Comparison(row=self.view.against, differences=tuple(self.differences), expected=expected)

    @property
    def split(self) -> str:
        """The split of all scores."""
        return self.cells[0].split

    @property
    def tasks(self) -> list[str]:
        """The columns, in order of first appearance."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def rows(self) -> list[str]:
        """The rows, in order of first appearance."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def of_row(self, row: str) -> dict[str, Cell]:
        """Return a row's cells by task."""
        return {cell.task: cell for cell in self.cells if cell.row == row}

    def metric(self, task: str) -> str:
        """Return the metric of a task's column."""
        return next(cell.metric for cell in self.cells if cell.task == task)

    def reported(self, task: str) -> list[ReportedRow]:
        """Return the paper's rows for a column; [] where it has no such task, another metric or another split."""
        found = self.view.paper.reported(task) if self.view.paper.split == self.split else []
        return [row for row in found if row.metric == self.metric(task)]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each expected pair of rows, in order."""
        return [self._verdict(above, below) for above, below in self.view.expected]

    def _verdict(self, above: str, below: str) -> Verdict:
        paper = self.view.paper
        means = {name: {c.task: c.mean for c in paper.cells if c.row == name} for name in (above, below)}
        leads = tuple(mean - means[below][task] for task, mean in means[above].items() if task in means[below])
        found = tuple(self.comparison.of(above, below))
        whole = self.comparison.whole(above, below) if found else None
        return Verdict(above=above, below=below, found=found, whole=whole, paper=paper.title, reported=leads)

    def claims(self) -> list[str]:
        """Return a sentence per compared row and expected pair, and one on the meaning of bold."""
        if not self.differences:
            return []
        verdicts = {(each.above, each.below): each.sentence for each in self.verdicts if each.found}
        against, comparison = self.view.against, self.comparison
        told = comparison.leads.items()
        leads = {(against, other): claim(found, comparison.whole(against, other)) for other, found in told}
        return [*(leads | verdicts).values(), comparison.meaning]
