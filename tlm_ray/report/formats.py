"""Format tables: mean and spread over seeds, Markdown, CSV and JSON."""

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ABSENT = "–"
LONGEST = 700  # characters of a quoted text
LIVE = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that starts with one of these for a formula


def spread_of(values: Sequence[float]) -> float:
    """Return the sample standard deviation (divisor n - 1) over seeds; 0.0 for a single seed.

    The paper does not name its divisor. Seeds are a sample of possible runs, hence n - 1; with three seeds this is 1.22
    times the result of divisor n.
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a mean over seeds, by Student's t; None for a single seed."""
    if len(values) < 2:
        return None
    from scipy.stats import t  # imported here, because it takes 0.4 s

    reach = float(t.ppf(0.975, len(values) - 1)) * spread_of(values) / len(values) ** 0.5
    return statistics.fmean(values) - reach, statistics.fmean(values) + reach


def score_text(values: Sequence[float]) -> str:
    """Return "mean ± spread" with two decimals, or only the mean for a single seed."""
    mean = statistics.fmean(values)
    return pair_text(mean, spread_of(values)) if len(values) > 1 else f"{mean:.2f}"


def pair_text(mean: float, spread: float) -> str:
    """Format a mean and a standard deviation."""
    return f"{mean:.2f} ± {spread:.2f}"


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] | range) -> list[str]:
    """Return the lines of a Markdown table; `right` are the right-aligned columns."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    head, *body = ([_in_a_cell(text) for text in row] for row in (header, *rows))
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def csv_text(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return CSV with a line per record, numbers in full precision, and texts that are no spreadsheet formulas."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_inert, columns))
    writer.writerows([_inert(record.get(column)) for column in columns] for record in records)
    return stream.getvalue()


def _inert(value: Any) -> Any:
    """Prefix a text that a spreadsheet would evaluate with an apostrophe."""
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
    """Return indented JSON; ValueError for NaN, which JSON does not have."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def human(flops: float) -> str:
    """Return a count of operations as the paper prints it, such as "2.74E18"."""
    if not math.isfinite(flops) or flops < 0:
        raise ValueError(f"flops is {flops}; a finite count of 0 or more is allowed")
    mantissa, exponent = f"{flops:.2E}".split("E")
    return f"{mantissa}E{int(exponent)}"


def cut(text: str) -> str:
    """Return the beginning of a text, with "…" where more follows."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
