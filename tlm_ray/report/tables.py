"""The results table for readers (Markdown) and for programs (CSV, JSON).

All of them hold test scores; development scores appear in the JSON only, under their own name.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tlm_ray.report.cells import Cell, check_cells, names, reported_for
from tlm_ray.report.comparison import Comparison
from tlm_ray.report.formats import csv_text, json_text, markdown_rows
from tlm_ray.report.grids import PRETRAINED_NOTE, Grid, make_grid

COSTS = ("flops", "flops_counted", "data_bytes", "wall_s", "pretrained", "pretraining_flops")
REPORTED_NOTE = (
    "Rows marked (reported) are the paper's own: Table 2 of Yao et al. (ICML 2022). Their FLOPs "
    "and data are means over its eight tasks, and count the first stage or the pretraining only."
)


def table_markdown(cells: Sequence[Cell], comparison: Comparison | None = None, *, notes: Sequence[str] = ()) -> str:
    """Return the table as GitHub Markdown: a line per row, a column per task, the paper's rows beneath.

    Scores are test scores in percent, mean ± sample standard deviation over seeds, in bold where the comparison shows
    the row to lie above all others; the comparison's own table and claims come next, then `notes`. Raises ValueError
    for cells that do not make one table.
    """
    grid = make_grid(cells, comparison)
    header = ["", *grid.columns]
    rows = [[line.name, *map(_emphasize, line.texts, line.best)] for line in grid.lines]
    lines = markdown_rows(header, rows, right=range(1, len(header)))
    comparison = comparison or Comparison(row="")
    compared = [*comparison.markdown(), ""] if comparison.leads else []
    remarks = [f"- {note}" for note in (*comparison.claims(), *_remarks(cells, grid), *notes)]
    return "\n".join([*lines, "", *compared, *remarks]) + "\n"


def _emphasize(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def _remarks(cells: Sequence[Cell], grid: Grid) -> list[str]:
    seeds = sorted({len(cell.scores) for cell in cells})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = "mean ± sample standard deviation over" if seeds[-1] > 1 else "of"
    plural = "seed" if seeds[-1] == 1 else "seeds"
    own = (
        f"Test scores in percent, {spread} {count} {plural}; FLOPs, data and training time are "
        "means over tasks and cover both stages. FLOPs are 6 × tokens × parameters, as in the paper; FLOPs "
        "counted are those of all matrix products, padding included."
    )
    notes = {
        own: True,
        PRETRAINED_NOTE: any(cell.pretrained for cell in cells),
        REPORTED_NOTE: any(line.is_reported for line in grid.lines),
    }
    return [note for note, applies in notes.items() if applies]


def table_csv(cells: Sequence[Cell]) -> str:
    """Return one line per cell, with a header; `scores` holds the test scores of all seeds, separated by spaces.

    Numbers keep full precision: percent, operations, bytes, seconds.
    """
    check_cells(cells)
    columns = ("row", "task", "metric", "mean", "std", "scores", *COSTS)
    records = [record | {"scores": " ".join(map(repr, record["scores"]))} for record in map(_record, cells)]
    return csv_text(columns, records)


def table_json(cells: Sequence[Cell], comparison: Comparison | None = None) -> str:
    """Return `{"cells": [...], "differences": [...], "reported": [...]}` as JSON.

    A cell has row, task, metric, mean, std, scores, dev_scores (percent), flops, flops_counted (null where not known),
    data_bytes, wall_s, pretrained (its costs leave the pretraining out) and pretraining_flops (as published, null where
    not known). A difference has row, other, tasks,
    mean, low, high, p and smallest, see `Comparison.records`. `reported` has the paper's rows for the
    tasks of the table, if it has them.
    """
    check_cells(cells)
    published = [asdict(row) for task in names(cells, "task") for row in reported_for(cells, task)]
    compared = [] if comparison is None else comparison.records()
    document = {"cells": [_record(cell) for cell in cells], "differences": compared, "reported": published}
    return json_text(document)


def _record(cell: Cell) -> dict[str, Any]:
    # float() and int(), since a NumPy scalar is a number to statistics but not to json.
    return {
        "row": cell.row,
        "task": cell.task,
        "metric": cell.metric,
        "mean": float(cell.mean),
        "std": float(cell.std),
        "scores": [float(score) for score in cell.scores],
        "dev_scores": [float(score) for score in cell.dev_scores],
        "flops": float(cell.flops),
        "flops_counted": float(cell.flops_counted) or None,
        "data_bytes": int(cell.data_bytes),
        "wall_s": float(cell.wall_s),
        "pretrained": cell.pretrained,
        "pretraining_flops": float(cell.pretraining_flops) or None,
    }
