"""Write the results table for readers (Markdown) and for programs (CSV, JSON).

A table covers one split. The JSON alone also lists development scores beside test scores, in their own field.
"""

from dataclasses import asdict
from typing import Any

from tlm_ray.report.formats import csv_text, json_text, markdown_rows
from tlm_ray.report.statistics.comparison import numbers
from tlm_ray.report.story import Story
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.grids import PRETRAINED_NOTE, make_grid
from tlm_ray.report.tables.results import ResultsData, Verdict

COSTS = ("flops", "flops_counted", "data_bytes", "wall_s", "pretrained", "pretraining_flops")
SPLIT_NAMES = {"test": "Test", "dev": "Development"}
PAPER = "Rows marked (reported) are the paper's own: {} of Yao et al. (ICML 2022)."
PAPERS_COSTS = "Their FLOPs and data are means over its eight tasks, and count the first stage or the pretraining only."


def table_markdown(results: ResultsData) -> str:
    """Return the table as GitHub Markdown: a line per row, a column per task, the paper's rows below.

    Scores are in percent, mean ± sample standard deviation over seeds. Bold marks a row significantly above all others.
    The table of differences, claims, verdicts and notes follow.
    """
    grid = make_grid(results)
    header = ["", *grid.columns]
    rows = [[line.name, *map(_emphasize, line.texts, line.best)] for line in grid.lines]
    lines = markdown_rows(header, rows, right=range(1, len(header)))
    comparison = results.comparison
    compared = [*comparison.markdown(), ""] if comparison.leads else []
    said = (*results.claims(), *remarks(results), *results.notes)
    return "\n".join([*lines, "", *compared, *(f"- {note}" for note in said)]) + "\n"


def _emphasize(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def remarks(results: ResultsData) -> list[str]:
    """Return notes that explain the numbers of a table."""
    seeds = sorted({len(cell.scores) for cell in results.cells})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = "mean ± sample standard deviation over" if seeds[-1] > 1 else "of"
    plural = "seed" if seeds[-1] == 1 else "seeds"
    own = (
        f"{SPLIT_NAMES[results.split]} scores in percent, {spread} {count} {plural}; FLOPs, data and training time are "
        "means over tasks and cover both stages. FLOPs are 6 × tokens × parameters, as in the paper "
        "(4 for frozen parameters); FLOPs counted are those of all matrix products, padding included."
    )
    reported = [row for task in results.tasks for row in results.reported(task)]
    notes = {
        own: True,
        PRETRAINED_NOTE: any(cell.pretrained for cell in results.cells),
        PAPER.format(results.view.paper.title): bool(reported),
        PAPERS_COSTS: any(row.flops for row in reported),
    }
    return [note for note, applies in notes.items() if applies]


def table_csv(results: ResultsData) -> str:
    """Return CSV with a header and a line per cell; `scores` lists all seeds, separated by spaces.

    Numbers keep full precision, in percent, operations, bytes and seconds.
    """
    columns = ("row", "task", "split", "metric", "x", "mean", "std", "scores", *COSTS)
    records = [record | {"scores": " ".join(map(repr, record["scores"]))} for record in map(_record, results.cells)]
    return csv_text(columns, records)


def table_json(results: ResultsData, story: Story | None = None) -> str:
    """Return `{"cells": [...], "differences": [...], "verdicts": [...], "reported": [...]}` as JSON.

    A cell has row, task, split, metric, mean, std, scores and dev_scores (all percent), data_bytes and wall_s. `x` is
    the varied number or null. `parts` holds both parts of a metric that is the mean of two. `flops` and `flops_counted`
    (null if unknown) exclude the pretraining of a `pretrained` row. `pretraining_flops` is that cost as published, or
    null. A difference has row, other, tasks, mean, low, high, p, p_corrected and smallest, as in `Comparison.records`.
    The last three are null where too few trainings leave a difference untested.
    `verdicts` are the outcomes of the expected differences, with the same numbers. `reported` has the paper's rows for
    these tasks. With a story, `settings` has the settings of each row and task, and `predictions` the folders of their
    predictions.
    """
    published = [asdict(row) for task in results.tasks for row in results.reported(task)]
    document = {
        "cells": [_record(cell) for cell in results.cells],
        "differences": results.comparison.records(),
        "verdicts": [_verdict(each) for each in results.verdicts],
        "reported": published,
    }
    return json_text(document | (_background(story) if story else {}))


def _background(story: Story) -> dict[str, Any]:
    settings = [vars(each) | {"values": {k: _plain(v) for k, v in each.values.items()}} for each in story.settings]
    return {"settings": settings, "predictions": [vars(each) for each in story.scored]}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    named = {name: getattr(verdict, name) for name in ("above", "below", "word", "paper")}
    return named | numbers(verdict.whole) | {"reported": list(verdict.reported)}


def _record(cell: Cell) -> dict[str, Any]:
    # float() and int(), because json does not accept NumPy scalars
    return {
        "row": cell.row,
        "task": cell.task,
        "split": cell.split,
        "metric": cell.metric,
        "x": None if cell.x is None else float(cell.x),
        "mean": float(cell.mean),
        "std": float(cell.std),
        "scores": [float(score) for score in cell.scores],
        "parts": [float(part) for part in cell.parts],
        "dev_scores": [float(score) for score in cell.dev_scores],
        "flops": float(cell.flops),
        "flops_counted": float(cell.flops_counted) or None,
        "data_bytes": int(cell.data_bytes),
        "wall_s": float(cell.wall_s),
        "pretrained": cell.pretrained,
        "pretraining_flops": float(cell.pretraining_flops) or None,
    }
