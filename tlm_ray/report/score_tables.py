"""A table of scores alone, columns as the experiment names them: what an ablation publishes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.report.formats import ABSENT, csv_text, json_text, markdown_rows, mean_of, score_text, spread_of


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one row reached in one column."""

    row: str
    """the table's row"""
    column: str
    """such as "sciie, both stages" """
    values: tuple[float, ...]
    """one number per seed, in percent"""

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"score of {self.row!r} in {self.column!r}: values is empty; give one number per seed")


def scores_markdown(scores: Sequence[Score]) -> str:
    """Return a GitHub Markdown table: mean ± sample standard deviation over seeds, in order of first appearance."""
    rows, columns = (list(dict.fromkeys(getattr(score, name) for score in scores)) for name in ("row", "column"))
    texts = {(score.row, score.column): score_text(score.values) for score in scores}
    if len(texts) < len(scores):
        raise ValueError("scores: one row and column occur twice; put their seeds into one score's values")
    body = [[row, *(texts.get((row, column), ABSENT) for column in columns)] for row in rows]
    return "\n".join(markdown_rows(["", *columns], body, right=range(1, len(columns) + 1))) + "\n"


def scores_csv(scores: Sequence[Score]) -> str:
    """Return one line per row and column; `scores` holds the numbers of all seeds, separated by spaces."""
    records = [record | {"scores": " ".join(map(repr, record["scores"]))} for record in map(_record, scores)]
    return csv_text(("row", "column", "mean", "std", "scores"), records)


def scores_json(scores: Sequence[Score]) -> str:
    """Return `{"cells": [...]}` as JSON, each with row, column, mean, std and scores."""
    return json_text({"cells": [_record(score) for score in scores]})


def _record(score: Score) -> dict[str, Any]:
    mean, std = mean_of(score.values), spread_of(score.values)
    return {"row": score.row, "column": score.column, "mean": mean, "std": std, "scores": list(score.values)}
