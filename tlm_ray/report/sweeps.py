"""The trials of a sweep, ordered by development score: Markdown, CSV and JSON.

A trial is a mapping with "k", "rho1", "rho2", "method" and "dev", the development score in percent
(None or NaN for a trial that did not finish); one that was stopped early has "stopped_step" and "stopped_dev" too.
Whatever else a trial holds becomes a further column. There is no test score here: a sweep chooses, and what it chose is
tested once, afterwards.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tlm_ray.report.formats import ABSENT, csv_text, json_text, markdown_rows

FIELDS = ("k", "rho1", "rho2", "method", "dev")

Trial = Mapping[str, Any]


def sort_trials(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the trials by falling development score; then those stopped early, the latest first, then failed ones.

    Trials of equal score keep their order. Raises ValueError for no trials or a missing field.
    """
    if not trials:
        raise ValueError("trials is empty; a sweep needs at least one trial")
    for index, trial in enumerate(trials):
        missing = [field for field in FIELDS if field not in trial]
        if missing:
            raise ValueError(f"trial {index} lacks {', '.join(missing)}; it must have {FIELDS}")
    known = [{key: _plain(value) for key, value in trial.items()} for trial in trials]
    return sorted(known, key=_rank)


def _rank(trial: Trial) -> tuple[float, ...]:
    if trial["dev"] is not None:
        return 0, -trial["dev"]
    return 1, -(trial.get("stopped_step") or 0)


def _plain(value: Any) -> Any:
    """Return what JSON can hold: NumPy scalars as Python's, NaN and infinities as None."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sweep_markdown(trials: Sequence[Trial]) -> str:
    """Return the trials as a GitHub Markdown table, the best first; scores with two decimals."""
    ordered = sort_trials(trials)
    columns = _columns(ordered)
    rows = [[str(rank), *(_text(trial, column) for column in columns)] for rank, trial in enumerate(ordered, start=1)]
    return "\n".join(markdown_rows(["", *columns], rows, right=range(4))) + "\n"


def _columns(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys((*FIELDS, *(key for trial in trials for key in trial))))


def _text(trial: Trial, column: str) -> str:
    value = trial.get(column)
    if value is None:
        return ABSENT if column != "dev" else "stopped" if "stopped_step" in trial else "failed"
    if column in ("dev", "stopped_dev"):
        return f"{value:.2f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_csv(trials: Sequence[Trial]) -> str:
    """Return one line per trial, the best first, with full precision; a failed one has no score."""
    ordered = sort_trials(trials)
    return csv_text(_columns(ordered), ordered)


def sweep_json(trials: Sequence[Trial]) -> str:
    """Return `{"trials": [...]}` as JSON, the best first; a failed trial's "dev" is null."""
    return json_text({"trials": sort_trials(trials)})
