"""Lay out a results table as strings, for Markdown and the terminal."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tlm_ray.corpus.labelled.hub import trained_as
from tlm_ray.report.formats import ABSENT, human, pair_text, score_text
from tlm_ray.report.paper import ReportedRow
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.results import ResultsData

MARK = "†"
PRETRAINED_NOTE = (
    f"{MARK} fine-tuning only, without pretraining, so not the full cost of such a row. The number after "
    "a + is the cost of its pretraining, as reported in the paper's Table 2."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a grid; `texts` has one string per column."""

    name: str
    texts: tuple[str, ...]
    best: tuple[bool, ...]
    is_reported: bool


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of strings: a column per task, the average, FLOPs (by the paper's rule and counted), data and time."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]


def name_of(cell: Cell) -> str:
    """Return a row's name, marked where its cost leaves out a pretraining."""
    return f"{cell.row} {MARK}" if cell.pretrained else cell.row


def make_grid(results: ResultsData) -> Grid:
    """Lay out cells by row and task, in order of first appearance, with the paper's rows below.

    The average is over this table's tasks, and missing for a row that lacks one of them. FLOPs, data and time are means
    over tasks. In each column, the row of ours that is significantly above all others is marked.
    """
    columns = tuple(f"{task} ({metric_text(results.metric(task))})" for task in results.tasks)
    return Grid(
        columns=(*columns, "avg", "FLOPs", "FLOPs counted", "data", "time"),
        lines=(*(_own_line(row, results) for row in results.rows), *_reported_lines(results)),
    )


def _own_line(row: str, results: ResultsData) -> Line:
    own, tasks = results.of_row(row), results.tasks
    scores = [_score_text(own[task]) if task in own else ABSENT for task in tasks]
    mark = f" {MARK}" if any(cell.pretrained for cell in own.values()) else ""
    return Line(
        name=row,
        texts=(
            *scores,
            _average({task: cell.mean for task, cell in own.items()}, tasks),
            _flops_text(statistics.fmean(cell.flops for cell in own.values())) + mark + _published(own.values()),
            _counted_text([cell.flops_counted for cell in own.values()], mark),
            size_text(statistics.fmean(cell.data_bytes for cell in own.values())) + mark,
            time_text(statistics.fmean(cell.wall_s for cell in own.values())) + mark,
        ),
        best=(*(results.comparison.is_best(row, task) for task in tasks), *[False] * 5),
        is_reported=False,
    )


def _score_text(cell: Cell) -> str:
    """Return the mean and its spread, and both parts of a metric that is the mean of two."""
    return score_text(cell.scores) + (f" ({_of_two(cell.parts)})" if cell.parts else "")


def _of_two(parts: Sequence[float]) -> str:
    return "/".join(f"{part:.1f}" for part in parts)


def _reported_lines(results: ResultsData) -> list[Line]:
    by_row: dict[str, dict[str, ReportedRow]] = {}
    for task in results.tasks:
        for row in results.reported(task):
            by_row.setdefault(row.row, {})[task] = row
    return [_reported_line(name, found, results.tasks) for name, found in by_row.items()]


def _reported_line(name: str, found: dict[str, ReportedRow], tasks: list[str]) -> Line:
    cost = next(iter(found.values()))
    scores = [_reported_score(found[task]) if task in found else ABSENT for task in tasks]
    average = _average({task: row.mean for task, row in found.items()}, tasks)
    costs = (human(cost.flops), ABSENT, f"{cost.data_gb:g} GB", ABSENT) if cost.flops else (ABSENT,) * 4
    texts = (*scores, average, *costs)
    return Line(name=f"{name} (reported)", texts=texts, best=(False,) * len(texts), is_reported=True)


def _reported_score(row: ReportedRow) -> str:
    if row.pair:
        return f"{row.mean:.2f} ({_of_two(row.pair)})"
    return f"{row.mean:.2f}" if row.std is None else pair_text(row.mean, row.std)


def _flops_text(flops: float) -> str:
    return human(flops) if flops else ABSENT


def _published(cells: Iterable[Cell]) -> str:
    """Return the reported pretraining cost of a row's encoder."""
    known = {cell.pretraining_flops for cell in cells} - {0.0}
    return f" + {human(known.pop())} (reported)" if len(known) == 1 else ""


def _counted_text(counts: list[float], mark: str) -> str:
    return human(statistics.fmean(counts)) + mark if all(counts) else ABSENT


def _average(means: Mapping[str, float], tasks: Sequence[str]) -> str:
    # A mean over fewer tasks than the header names is not comparable between rows.
    return f"{average_of(means):.2f}" if means.keys() == set(tasks) else ABSENT


def average_of(means: Mapping[str, float]) -> float:
    """Return the mean over tasks; tasks that differ only in their test set count as one (table 10)."""
    scores: dict[str, list[float]] = {}
    for task, mean in means.items():
        scores.setdefault(trained_as(task), []).append(mean)
    return statistics.fmean(map(statistics.fmean, scores.values()))


def metric_text(metric: str) -> str:
    """Return a metric's display name: "macro-F1" for "macro_f1"."""
    return metric.replace("_", "-").replace("f1", "F1")


def size_text(size_bytes: float) -> str:
    """Return a size in decimal units with three digits, such as "1.21 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size_bytes < 999.5:  # from here on, three digits would round to 1E+03
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} PB"


def time_text(seconds: float) -> str:
    """Return a duration with one decimal, in the largest unit that is below it, such as "3.5 h"."""
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.1f} {unit}"
    return f"{seconds:.1f} s"
