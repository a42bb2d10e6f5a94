"""Split the rows of one file: by a column that names each row's split, or by a hash of the text.

By a hash, dev and test are a tenth of the training rows each.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tlm_ray.corpus.labelled.task_files import split_named
from tlm_ray.corpus.labelled.task_rows import check
from tlm_ray.corpus.labelled.text_groups import names_of_alike

SHARE = 0.1  # share of the rows per missing split
RULE, RULE_OF_ALIKE = 1, 2  # versions of the splitting; the second of tasks with rows that are alike, but not equal
LEAST = 3  # distinct texts that a class needs to be split
COLUMN = "split"


def split_column(table: pa.Table, uri: str) -> dict[str, list[int]]:
    """Return the rows of each split that a column named split tells; {} without one.

    A column of which no value names a split, such as numbers of folds, is no such column. ValueError names rows whose
    value is none if others are, or a file without rows of train.
    """
    column = next((name for name in table.column_names if name.strip().lower() == COLUMN), "")
    if not column:
        return {}
    values = [str(value).strip() for value in table[column].to_pylist()]
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(split_named(value), []).append(row)
    unknown = rows.pop("", [])
    if not rows:
        return {}
    words = f"is not a split; allowed in column {column!r} are train, dev and test; fix it, or rename the column"
    check(uri, [(row, f"{values[row]!r} {words}") for row in unknown])
    if "train" not in rows:
        raise ValueError(f"file {uri!r}: column {column!r} has no row of train; add some, or rename the column")
    return rows


def cut(table: pa.Table, splits: Sequence[str], *, by_label: bool) -> tuple[dict[str, pa.Table], int]:
    """Cut splits off a training table (text, text_pair, label); return train and the splits, rows in order, and a rule.

    Rows of the same text stay together, whatever its marks, case, spaces and punctuation. A hash of the text decides
    its split, so the order of rows has no effect, unless a text has two labels: the first is its class here. by_label:
    each class gives a tenth of its texts, at least one if it has three; else all rows count as one class. The rule is
    part of the task's identity.
    """
    columns = table["text"].to_pylist(), table["text_pair"].to_pylist()
    texts = names_of_alike(*columns)
    is_plain = texts == [f"{text}\0{pair}" for text, pair in zip(*columns, strict=True)]
    labels = table["label"].to_pylist() if by_label else [""] * len(texts)
    classes: dict[str, dict[str, None]] = {}
    for text, label in dict(zip(reversed(texts), reversed(labels), strict=True)).items():
        classes.setdefault(label, {})[text] = None
    goes = {text: split for found in classes.values() for text, split in _shared_out(list(found), splits).items()}
    kept = {label for text, label in zip(texts, labels, strict=True) if text not in goes}
    for text, label in zip(texts, labels, strict=True):
        if label not in kept:  # all its texts also have another label, which decided their split
            goes.pop(text, None)
    where = np.array([goes.get(text, "train") for text in texts])
    made = {split: table.filter(pa.array(where == split)) for split in ("train", *splits)}
    return made, RULE if is_plain else RULE_OF_ALIKE


def _shared_out(texts: Sequence[str], splits: Sequence[str]) -> dict[str, str]:
    """Return the split of each text of a class that leaves train."""
    if len(texts) < LEAST:
        return {}
    drawn = sorted(texts, key=lambda text: hashlib.sha256(f"{RULE}\0{text}".encode()).digest())
    size = max(1, round(SHARE * len(texts)))
    return {text: split for i, split in enumerate(splits) for text in drawn[i * size : (i + 1) * size]}
