"""Take texts and labels as notebooks have them: lists, numpy, pandas, pyarrow, Hugging Face and Ray Datasets."""

import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tlm_ray.corpus.labelled.class_names import MOST_NUMBERS
from tlm_ray.corpus.labelled.marks import marks_of
from tlm_ray.corpus.labelled.task_splits import LEAST

DEV = ("validation", "dev", "valid")  # names of a split to choose the model on


class Labelled(NamedTuple):
    """Labelled rows."""

    texts: list[list[str]]
    """a column of texts, or two for pairs"""
    labels: list[Any]
    """a label per row"""


def splits_of(data: Any, labels: Any, *, text: str, label: str) -> dict[str, Labelled]:
    """Return the rows of train and, if the data has it, of dev.

    data: texts with their labels, or a table with both, or a mapping of such tables by split. ValueError names the
    argument, the row and the fix.
    """
    if isinstance(data, Mapping) and labels is None and "train" in data:
        dev = next((name for name in DEV if name in data), None)
        wanted = {"train": "train"} | ({"dev": dev} if dev else {})
        return {split: _of_table(data[name], text=text, label=label) for split, name in wanted.items()}
    if labels is None:
        return {"train": _of_table(data, text=text, label=label)}
    table = _as_table(data)
    if table is not None and {text, label} <= set(table.column_names):
        raise ValueError(f"X: has the labels too, as the column {label!r}; give X[{text!r}], or leave y out")
    texts = texts_of(data)
    found = [_plain(each) for each in _labels_of(labels)]
    if len(found) != len(texts[0]):
        raise ValueError(f"X and y: {len(texts[0]):,} texts and {len(found):,} labels; give one label per text")
    return {"train": Labelled(texts, _checked_labels(found))}


def _labels_of(labels: Any) -> list[Any]:
    """Return the labels of a list, an array, a series or a table of one column."""
    table = _as_table(labels)
    if table is None:
        return _listed(labels, "y")
    if table.num_columns != 1:
        raise ValueError(f"y: has {table.num_columns} columns ({', '.join(table.column_names)}); give one")
    return table[0].to_pylist()


def texts_of(data: Any) -> list[list[str]]:
    """Return the texts as one column, or two for pairs; ValueError names a row without text."""
    if isinstance(data, str | bytes):
        raise ValueError(f"X {data!r}: is one text; give a list of texts")
    table = _as_table(data)
    if table is not None:
        if not 1 <= table.num_columns <= 2:
            raise ValueError(
                f"X: has {table.num_columns} columns ({', '.join(table.column_names)}); give one, or two of pairs"
            )
        columns = [table[name].to_pylist() for name in table.column_names]
    else:
        rows = _listed(data, "X")
        pairs = [not isinstance(row, str) and isinstance(row, Sequence | np.ndarray) and len(row) == 2 for row in rows]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows and all(pairs) else [rows]
        if rows and all(isinstance(row, list | tuple | np.ndarray) and len(row) == 1 for row in rows):
            columns = [[row[0] for row in rows]]
    if not columns[0]:
        raise ValueError("X: has no texts; give one at least")
    return [_checked_texts(column) for column in columns]


def _of_table(data: Any, *, text: str, label: str) -> Labelled:
    table = _as_table(data)
    if isinstance(data, Mapping) and table is None:
        raise ValueError(
            f"X: is a dict of {', '.join(map(str, data))}; give a table, or tables by split, train among them"
        )
    if table is None:
        raise ValueError(f"y: is missing; give labels, or X as a table with the columns {text!r} and {label!r}")
    for name in (text, label):
        if name not in table.column_names:
            raise ValueError(
                f"X: has no column {name!r}, only {', '.join(table.column_names)}; name it (text=..., label=...)"
            )
    names = _class_names(data, label)
    labels = [_plain(each) for each in table[label].to_pylist()]
    for row, each in enumerate(labels if names else ()):
        if not isinstance(each, int) or not 0 <= each < len(names):
            raise ValueError(f"{label}, row {row}: {each!r} has no name among {', '.join(names)}; take the row out")
        labels[row] = names[each]
    return Labelled([_checked_texts(table[text].to_pylist())], _checked_labels(labels))


def _as_table(data: Any) -> pa.Table | None:
    """Return a table of any library as pyarrow's; None for what is no table."""
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "to_arrow_refs"):  # a Ray Dataset
        import ray

        return pa.concat_tables(ray.get(data.to_arrow_refs()))
    if isinstance(getattr(data, "features", None), Mapping) and hasattr(data, "to_dict"):  # Hugging Face's datasets
        return pa.table(data.to_dict())
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # pandas
        return pa.table({str(name): _listed(data[name], "X") for name in data.columns})
    return None


def _class_names(data: Any, label: str) -> list[str]:
    """Return the names of a Hugging Face dataset's classes, by their numbers."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping) or label not in features:
        return []
    return list(getattr(features[label], "names", None) or [])


def _listed(values: Any, name: str) -> list[Any]:
    """Return the values of a list, an array or a series in its order."""
    if isinstance(values, str | bytes | Mapping | Set):
        raise ValueError(f"{name}: is a {type(values).__name__}; give a list, an array or a series")
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist())
    if hasattr(values, "tolist"):
        found = values.tolist()
        return found if isinstance(found, list) else [found]
    if isinstance(values, Iterable):
        return list(values)
    raise ValueError(f"{name}: is a {type(values).__name__}; give a list, an array or a series")


def _checked_texts(texts: Sequence[Any]) -> list[str]:
    for row, each in enumerate(texts):
        if not isinstance(each, str) or not each.strip():
            raise ValueError(f"X, row {row}: {_short(each)} is no text; fill it in or take the row out")
    return [str(each) for each in texts]


def _checked_labels(labels: Sequence[Any]) -> list[Any]:
    for row, each in enumerate(labels):
        if not isinstance(each, Hashable) or (not isinstance(each, str | tuple) and pd.isna(each)):
            raise ValueError(f"y, row {row}: {_short(each)} is no label; fill it in or take the row out")
    kinds = {type(each) for each in labels}
    if len(kinds) > 1:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"y: has labels of several types ({shown}); give all one type, such as str")
    return list(labels)


def check_classes(splits: Mapping[str, Labelled]) -> None:
    """Raise ValueError if the labels are no classes, or too few texts have them to train and to choose a model."""
    texts: dict[Any, set[tuple[str, ...]]] = {}
    train = splits["train"]
    for label, *row in zip(train.labels, *train.texts, strict=True):
        texts.setdefault(label, set()).add(tuple(row))
    if len(texts) < 2:
        raise ValueError(f"y: has one class only, {train.labels[0]!r}; classification needs two or more")
    fractions = [each for each in texts if isinstance(each, float) and not each.is_integer()]
    if fractions and len(texts) > MOST_NUMBERS:
        raise ValueError(f"y: has {len(texts):,} different numbers, such as {fractions[0]:g}; give classes")
    if "dev" in splits:
        unknown = [each for each in splits["dev"].labels if each not in texts]
        why = f"has {unknown[0]!r}, which train has not" if unknown else "has one class only"
        if unknown or len(set(splits["dev"].labels)) < 2:
            raise ValueError(f"y of dev: {why}; give dev rows of two or more classes of train, or leave dev out")
    elif sum(len(found) >= LEAST for found in texts.values()) < 2:
        swapped = "y has a class per row, so X and y may be swapped; " if len(texts) == len(train.labels) > 2 else ""
        raise ValueError(
            f"X and y: {swapped}two classes need {LEAST} different texts or more, of which dev gets one; give more "
            "rows, or a DatasetDict with validation"
        )


def signs_of(train: Labelled) -> tuple[str, ...]:
    """Return the brackets that mark two spans in the texts; ValueError if they do not."""
    found = marks_of([" ".join(row) for row in zip(*train.texts, strict=True)])
    if found is None:
        raise ValueError(
            "marks: the texts do not mark two spans each by two kinds of brackets, such as [[ this ]] and << that >>; "
            "mark them, or leave it out"
        )
    return found.signs


def _short(value: Any) -> str:
    """Return a value as it may stand in one line."""
    return " ".join(reprlib.repr(value).split())


def _plain(value: Any) -> Any:
    """Return numpy's scalars as Python's."""
    return value.item() if isinstance(value, np.generic) else value
