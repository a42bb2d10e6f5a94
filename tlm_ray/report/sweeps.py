"""Order the trials of a sweep by development score, as Markdown, LaTeX, CSV and JSON.

A trial is a mapping with a value, a number or a word, for each varied parameter. "dev" is its development score in
percent, None or NaN for an unfinished trial. A trial after early stopping also has "stopped_step" and "stopped_dev".
With several seeds, "low" and "high" are the ends of the confidence interval. Every other key becomes a further
column. There are no test scores: the chosen recipe is tested once, after the sweep.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tlm_ray.report.formats import ABSENT, csv_text, json_text, markdown_rows
from tlm_ray.report.tables.latex import escaped, tabular

SCORES = ("dev", "low", "high", "stopped_dev")

Trial = Mapping[str, Any]


def sort_trials(trials: Sequence[Trial], parameters: Sequence[str]) -> list[dict[str, Any]]:
    """Return finished trials by descending development score, then early-stopped (latest first), then failed ones.

    Each begins with the parameters and dev. Trials with equal scores keep their order. ValueError for no trials or a
    missing field.
    """
    if not trials:
        raise ValueError("trials is empty; a sweep needs at least one trial")
    needed = (*parameters, "dev")
    for index, trial in enumerate(trials):
        if missing := [field for field in needed if field not in trial]:
            raise ValueError(f"trial {index} lacks {', '.join(missing)}; it must have {', '.join(needed)}")
    known = [{key: _plain(trial[key]) for key in dict.fromkeys((*needed, *trial))} for trial in trials]
    return sorted(known, key=_rank)


def _rank(trial: Trial) -> tuple[float, ...]:
    if trial["dev"] is not None:
        return 0, -trial["dev"]
    return 1, -(trial.get("stopped_step") or 0)


def _plain(value: Any) -> Any:
    """Convert a value for JSON: NumPy scalars to Python's, NaN and infinities to None."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sweep_markdown(ordered: Sequence[Trial]) -> str:
    """Return sorted trials as a GitHub Markdown table, best first; scores with two decimals."""
    columns, rows = _cells(ordered)
    numbers = [c for c, name in enumerate(columns, start=1) if not any(isinstance(t.get(name), str) for t in ordered)]
    said = ["", f"- Trial 1: {best_of(ordered)}"] if ordered[0]["dev"] is not None else []
    return "\n".join([*markdown_rows(["", *columns], rows, right=[0, *numbers]), *said]) + "\n"


def sweep_latex(ordered: Sequence[Trial]) -> str:
    """Return sorted trials as LaTeX, which needs the package booktabs, best first; scores with two decimals."""
    columns, rows = _cells(ordered)
    group = [[rank, *map(escaped, texts)] for rank, *texts in rows]
    return "\n".join(["% \\usepackage{booktabs}", *tabular(["trial", *columns], [group])]) + "\n"


def _cells(ordered: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Return the columns, and a row per trial of its rank and a text per column."""
    columns = columns_of(ordered)
    rows = [[str(rank), *(text_of(trial, column) for column in columns)] for rank, trial in enumerate(ordered, start=1)]
    return columns, rows


def best_of(trials: Sequence[Trial]) -> str:
    """Return a note on the number of trials; the best score of many is optimistic."""
    tried = sum(trial.get("dev") is not None or "stopped_step" in trial for trial in trials)
    return f"best of {tried:,} trials on dev; its dev score is optimistic" if tried > 1 else "the only trial on dev"


def columns_of(trials: Sequence[Trial]) -> list[str]:
    """Return the columns of the table, in order of first appearance."""
    return list(dict.fromkeys(key for trial in trials for key in trial))


def text_of(trial: Trial, column: str) -> str:
    """Return a cell of the table; a trial without a score is stopped or failed."""
    value = trial.get(column)
    if value is None:
        return ABSENT if column != "dev" else "stopped" if "stopped_step" in trial else "failed"
    if column in SCORES:
        return f"{value:.2f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_csv(ordered: Sequence[Trial]) -> str:
    """Return CSV with a line per sorted trial, best first, in full precision; a failed trial has no score."""
    return csv_text(columns_of(ordered), ordered)


def sweep_json(ordered: Sequence[Trial]) -> str:
    """Return `{"trials": [...]}` as JSON, best first; a failed trial's "dev" is null."""
    return json_text({"trials": list(ordered)})
