"""How all tables are written: mean and spread over seeds, Markdown, CSV and JSON."""

import csv
import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ABSENT = "–"
LIVE = ("=", "+", "-", "@", "\t", "\r")  # with these a spreadsheet takes a text for a formula


def mean_of(values: Sequence[float]) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(values)


def spread_of(values: Sequence[float]) -> float:
    """Return the sample standard deviation (divisor n - 1) over seeds; 0.0 for a single seed.

    The paper does not say which divisor it used. Seeds are a sample of the runs one could make, so n - 1; with three
    seeds it is 1.22 times what divisor n gives.
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


def interval_of(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Return the interval of a mean over seeds by Student's t, None for a single seed, which has none."""
    if len(values) < 2:
        return None
    from scipy.stats import t  # here, because its import takes 0.4 s

    reach = float(t.ppf((1 + level) / 2, len(values) - 1)) * spread_of(values) / len(values) ** 0.5
    return mean_of(values) - reach, mean_of(values) + reach


def score_text(values: Sequence[float]) -> str:
    """Return "mean ± spread" with two decimals, or the mean alone for a single seed."""
    mean = mean_of(values)
    return pair_text(mean, spread_of(values)) if len(values) > 1 else f"{mean:.2f}"


def pair_text(mean: float, spread: float) -> str:
    """Return a mean and a standard deviation as they are printed."""
    return f"{mean:.2f} ± {spread:.2f}"


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] | range) -> list[str]:
    """Return the lines of a Markdown table; `right` are the columns whose text is set right."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    head, *body = ([_in_a_cell(text) for text in row] for row in (header, *rows))
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def csv_text(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return a header and one line per record; numbers keep full precision, and no text is a spreadsheet's formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_inert, columns))
    writer.writerows([_inert(record.get(column)) for column in columns] for record in records)
    return stream.getvalue()


def _inert(value: Any) -> Any:
    """Set an apostrophe before a text that a spreadsheet would compute."""
    if not isinstance(value, str) or not value.startswith(LIVE):
        return value
    return value if all(map(_is_number, value.split(" "))) else f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def json_text(document: Any) -> str:
    """Return JSON for people and programs; ValueError for NaN, which JSON has not."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
