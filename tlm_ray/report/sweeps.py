"""The trials of a sweep, ordered by development score: Markdown, CSV and JSON.

A trial is a mapping with "k", "rho1", "rho2", "method" and "dev", the development score in percent
(None or NaN for a trial that failed); whatever else it holds becomes a further column. There is no
test score here: a sweep chooses, and what it chose is tested once, afterwards.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tlm_ray.report.grids import ABSENT
from tlm_ray.report.tables import markdown_rows

FIELDS = ("k", "rho1", "rho2", "method", "dev")

Trial = Mapping[str, Any]


def sort_trials(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the trials by falling development score, failed ones last with a score of None.

    Trials of equal score keep their order. Raises ValueError for no trials or a missing field.
    """
    if not trials:
        raise ValueError("trials is empty; a sweep needs at least one trial")
    for index, trial in enumerate(trials):
        missing = [field for field in FIELDS if field not in trial]
        if missing:
            raise ValueError(f"trial {index} lacks {', '.join(missing)}; it must have {FIELDS}")
    known = [{key: _plain(value) for key, value in trial.items()} for trial in trials]
    return sorted(known, key=lambda t: math.inf if t["dev"] is None else -t["dev"])


def _plain(value: Any) -> Any:
    """Return what JSON can hold: NumPy scalars as Python's, NaN and infinities as None."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sweep_markdown(trials: Sequence[Trial]) -> str:
    """Return the trials as a GitHub Markdown table, the best first; scores with two decimals."""
    ordered = sort_trials(trials)
    columns = _columns(ordered)
    rows = [
        [str(rank), *(_text(trial.get(column), column) for column in columns)]
        for rank, trial in enumerate(ordered, start=1)
    ]
    return "\n".join(markdown_rows(["", *columns], rows, right=range(4))) + "\n"


def _columns(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys((*FIELDS, *(key for trial in trials for key in trial))))


def _text(value: Any, column: str) -> str:
    if column == "dev":
        return "failed" if value is None else f"{value:.2f}"
    if value is None:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_csv(trials: Sequence[Trial]) -> str:
    """Return one line a trial, the best first, with full precision; a failed one has no score."""
    ordered = sort_trials(trials)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _columns(ordered), lineterminator="\n")
    writer.writeheader()
    writer.writerows(ordered)
    return stream.getvalue()


def sweep_json(trials: Sequence[Trial]) -> str:
    """Return `{"trials": [...]}` as JSON, the best first; a failed trial's "dev" is null."""
    document = {"trials": sort_trials(trials)}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
