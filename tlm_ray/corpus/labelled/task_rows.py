"""Read the rows of a task's file as strings and check them; one error lists all invalid rows.

Rows are counted from 1, below the header if there is one.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tlm_ray.corpus.general.documents import as_strings, read_columns
from tlm_ray.corpus.labelled.class_names import is_missing, is_number, named, names_in
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_files import is_table

MOST_ROWS = 10  # rows to name in a message
MOST_KINDS = 5  # kinds of errors to name in a message
EMPTY = "{} is empty; fill it in or take the row out"
NO_LABEL = "label {!r} is a missing value; fill it in or take the row out"


def read_file(uri: str) -> pa.Table:
    """Read a whole file of a task; ValueError if it has no rows or is plain text."""
    if not is_table(uri):
        raise ValueError(f"file {uri!r}: a task's files are .parquet, .csv or .jsonl, with columns text and label")
    batches = list(read_columns(uri, whole=True))
    if not sum(len(batch) for batch in batches):
        raise ValueError(f"file {uri!r} has no rows; a task needs examples in train, dev and test")
    return _joined([pa.Table.from_batches([batch]) for batch in batches], uri)


def _joined(tables: list[pa.Table], uri: str) -> pa.Table:
    """Concatenate a file's batches; a column of numbers in one batch and text in another becomes text.

    A column whose type changes and cannot become text, such as lists, is dropped, because no task can use it.
    """
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    kinds = {
        name: {t.schema.field(name).type for t in tables if name in t.column_names} - {pa.null()} for name in names
    }
    for name in (name for name, found in kinds.items() if len(found) > 1):
        for place, table in enumerate(tables):
            if name not in table.column_names:
                continue
            column = table.column_names.index(name)
            try:
                tables[place] = table.set_column(column, name, as_strings(table[name], name, uri))
            except ValueError:
                tables = [t.drop_columns([name]) if name in t.column_names else t for t in tables]
                break
    return pa.concat_tables(tables, promote_options="permissive")


def as_rows(table: pa.Table, columns: Columns, uri: str, *, numbers: bool) -> pa.Table:
    """Return a file's rows as text, text_pair and label, all strings; ValueError names rows with empty values.

    numbers: labels must be finite numbers; else numbers whose names the file has become these names.
    """
    names = {"text": columns.text, "label": columns.label, "text_pair": columns.text_pair}
    found = {name: as_strings(table[column], column, uri) for name, column in names.items() if column}
    wrong = [
        (row, EMPTY.format(name))
        for name, values in found.items()
        for row, value in enumerate(values.to_pylist())
        if value is None or not value.strip()
    ]
    if names_of := () if numbers else names_in(table, columns.label):
        found["label"] = named(found["label"], names_of)
    labels = [(row, value) for row, value in enumerate(found["label"].to_pylist()) if value]
    if numbers:
        words = "label {!r} is not a number, which a regression needs"
        wrong += [(row, words.format(value)) for row, value in labels if not is_number(value)]
    elif names_of:
        words = f"has no name among the file's {', '.join(names_of)}; take the row out"
        wrong += [(row, f"label {value!r} {words}") for row, value in labels if value not in names_of]
    else:
        wrong += [(row, NO_LABEL.format(value)) for row, value in labels if is_missing(value)]
    check(uri, wrong)
    found.setdefault("text_pair", pa.array([""] * len(table)))
    return pa.table({name: found[name] for name in ("text", "text_pair", "label")})


def check_labels(rows: pa.Table, labels: Sequence[str], uri: str) -> None:
    """Raise ValueError with the rows of a file whose label is missing in the training file."""
    known, words = set(labels), f"is not among the training file's {', '.join(labels)}"
    wrong = [
        (row, f"label {label!r} {words}; fix it or add training examples of it")
        for row, label in enumerate(rows["label"].to_pylist())
        if label not in known
    ]
    check(uri, wrong)


def check(uri: str, wrong: Iterable[tuple[int, str]]) -> None:
    """Raise ValueError with the invalid rows of a file, if there are any.

    wrong: row, counted from 0, and its error.
    """
    rows: dict[str, list[int]] = {}
    for row, what in wrong:
        rows.setdefault(what, []).append(row + 1)
    if rows:
        said = [f"{_named(found)}: {what}" for what, found in list(rows.items())[:MOST_KINDS]]
        raise ValueError(f"file {uri!r}, {'. And '.join(said)}")


def _named(rows: Sequence[int]) -> str:
    named = ", ".join(map(str, rows[:MOST_ROWS]))
    more = f" and {len(rows) - MOST_ROWS:,} more" if len(rows) > MOST_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {named}{more}"
