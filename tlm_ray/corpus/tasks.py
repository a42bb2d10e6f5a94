"""Labelled tasks: files of texts and labels, as train, dev and test.

Labels are found in the training rows, never hard-coded; with a metric of regression they are numbers. Everything that
can be wrong with a task is found here, before any expensive work starts, and whatever was not plain is noted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.dialects import dialect_of
from tlm_ray.corpus.documents import file_format
from tlm_ray.corpus.hub import HUB_TASKS, USUAL, HubTask, known_name, short_name
from tlm_ray.corpus.task_columns import Columns
from tlm_ray.corpus.task_files import SPLITS, Files, is_table, located, split_files
from tlm_ray.corpus.task_rows import as_rows, check_labels, read_file
from tlm_ray.corpus.task_splits import RULE, cut
from tlm_ray.evaluation.scores import Metric, metric_named

TASK = "task.json"
UNNAMED = Columns()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A labelled task, read and checked."""

    name: str
    """its short name; "" of one that was kept, which is the same under any"""
    metric: str
    """the name of its metric"""
    labels: tuple[str, ...]
    """the classes, in the order of their ids; empty in a regression"""
    digests: tuple[str, str, str]
    """of the files of train, dev and test, and of what they were taken for: the task's identity"""
    splits: dict[str, pa.Table] = field(compare=False, repr=False)
    """train, dev and test: text and text_pair (strings, a pair's second is "" where there is none) and label (int64
    class ids, or float64 in a regression)"""
    columns: Columns = field(default=USUAL, compare=False)
    """what they were called in its files"""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """what was not plain in its files, and what it was taken for"""

    @cached_property
    def train_texts(self) -> list[str]:
        """The training texts, both sides of a pair as one text: the retrieval queries."""
        return self.texts("train")

    def texts(self, split: str) -> list[str]:
        """Return one text per row of a split, both sides of a pair joined by a space."""
        columns = (self.splits[split][name].to_pylist() for name in ("text", "text_pair"))
        return [f"{text} {pair}".rstrip() for text, pair in zip(*columns, strict=True)]


def read_task(name: str, *, task_root: str = "", metric: str | Metric = "", columns: Columns = UNNAMED) -> Task:
    """Read and check a task: a location, a name below `task_root`, or a name of the paper's or GLUE's tasks.

    A location is a folder with files of train, dev and test, or one file; dev and test rows that are not there are cut
    from train (`task_splits`). metric: a name or a Metric of your own, which also says whether labels are classes or
    numbers; "" for the task's. columns: what text and label are called, where their names do not say it.
    ValueError or FileNotFoundError names the file, the rows and the fix: missing column, empty text, a label in dev or
    test that train does not have, fewer than two classes, a label that is no number where `metric` is of regression.
    """
    source = _source(name, task_root, columns)
    files = split_files(source)
    scored_by = metric_named(metric or source.metric)
    by_label = not scored_by.is_regression
    own, parts = _read(files, source.columns, numbers=not by_label)
    splits = {split: pa.concat_tables(tables) for split, tables in parts.items()}
    missing = [split for split in SPLITS if split not in splits]
    splits |= cut(splits["train"], missing, by_label=by_label) if missing else {}
    labels = _labels(splits["train"], files["train"][0]) if by_label else ()
    _check_classes(scored_by, labels, files["train"][0])
    _check_cut(splits, missing, own, files["train"][0], least=1 if by_label else 2)
    for split, tables in parts.items():
        for uri, table in zip(files[split], tables, strict=True) if by_label else ():
            check_labels(table, labels, uri)
    return Task(
        name=short_name(name),
        metric=scored_by.name,
        labels=labels,
        digests=_digests(files, USUAL if source in HUB_TASKS.values() else own),
        splits={split: _numbered(splits[split], labels) for split in SPLITS},
        columns=own,
        notes=tuple(_notes(files, own, source.columns, splits)),
    )


def _source(name: str, task_root: str, columns: Columns) -> HubTask:
    """Return where a task is and what is known of it."""
    hub = HUB_TASKS.get(known_name(short_name(name)), HubTask(uri=""))
    if task_root:
        return HubTask(uri=located(task_root, name), metric=hub.metric, columns=columns)
    if "/" in name or is_table(name):
        return HubTask(uri=name, metric=hub.metric, columns=columns)
    if not hub.uri:
        raise ValueError(
            f"task {name!r}: known names are {', '.join(HUB_TASKS)}; for your own give its folder or file, or "
            "--task-root"
        )
    return hub


def _read(files: Files, columns: Columns, *, numbers: bool) -> tuple[Columns, dict[str, list[pa.Table]]]:
    """Return the columns, as the first file of train has them, and the rows of each file of each split, as strings."""
    first = read_file(files["train"][0])
    own = columns.found(first, files["train"][0])
    rows = {}
    for split, uris in files.items():
        read = [(uri, first if uri == files["train"][0] else read_file(uri)) for uri in uris]
        rows[split] = [as_rows(table, own.found(table, uri), uri, numbers=numbers) for uri, table in read]
    return own, rows


def _check_cut(
    splits: Mapping[str, pa.Table], missing: Sequence[str], columns: Columns, uri: str, *, least: int
) -> None:
    """ValueError if what was cut off train leaves a split without the rows that a score needs."""
    for split in missing:
        if len(splits[split]) < least:
            labels = len(set(splits["train"]["label"].to_pylist()))
            raise ValueError(
                f"file {uri!r}: too few rows to cut {split} from: column {columns.label!r}, taken for the label, has "
                f"{labels:,} values in {sum(map(len, splits.values())):,} rows; a class needs three different texts to "
                "give one. Name another column (--label), add rows, or give dev and test files"
            )


def _check_classes(metric: Metric, labels: tuple[str, ...], uri: str) -> None:
    if metric.name == "accuracy_f1" and len(labels) > 2:
        raise ValueError(f"metric 'accuracy_f1' is for 2 classes, file {uri!r} has {len(labels)}; use 'macro_f1'")


def _labels(train: pa.Table, uri: str) -> tuple[str, ...]:
    """Return the classes of the training rows: by value where all are integers, else by name."""
    found = set(train["label"].to_pylist())
    if len(found) < 2:
        raise ValueError(
            f"file {uri!r}: column label has one class only, {found.pop()!r}; classification needs two or more"
        )
    if all(re.fullmatch("-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def _digests(files: Files, columns: Columns) -> tuple[str, str, str]:
    """Return what identifies each split: of one file with the usual columns, its sha256."""

    def of(split: str) -> str:
        found = [storage.digest(uri) for uri in files.get(split, files["train"])]
        said: list[Any] = [] if columns.usual else [asdict(columns)]
        said += [] if len(files) == len(SPLITS) else [RULE, sorted(files), split]
        return found[0] if len(found) == 1 and not said else sha256(json.dumps([found, *said]).encode()).hexdigest()

    train, dev, test = map(of, SPLITS)
    return train, dev, test


def _notes(files: Files, columns: Columns, asked: Columns, splits: Mapping[str, pa.Table]) -> Iterator[str]:
    """Say what the files were taken for, where that is not plain."""
    for uri in dict.fromkeys(uri for uris in files.values() for uri in uris):
        if file_format(uri) == "csv" and (words := dialect_of(uri).words):
            yield f"{uri.rpartition('/')[2]}: {words}"
    if not columns.usual and columns != asked:
        yield f"columns: {columns.words}"
    missing = [split for split in SPLITS if split not in files]
    if missing:
        rows = ", ".join(f"{len(table):,} {split}" for split, table in splits.items())
        yield f"no {' and no '.join(missing)} file: a tenth of the texts each, drawn by their hashes: {rows} rows"


def _numbered(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Return rows with class ids for labels, or numbers where there are no classes."""
    values = table["label"].to_pylist()
    if not labels:
        return table.set_column(2, "label", pa.array(map(float, values), pa.float64()))
    index = {label: i for i, label in enumerate(labels)}
    return table.set_column(2, "label", pa.array([index[value] for value in values], pa.int64()))


def write_task(folder: str, task: Task) -> dict[str, int]:
    """Keep a checked task in a stage's folder; returns how many classes, rows, bytes, and test rows that train has."""
    for split, table in task.splits.items():
        storage.write_table(storage.join(folder, f"{split}.arrow"), table)
    values = {"metric": task.metric, "labels": task.labels, "digests": task.digests}
    storage.write_record(storage.join(folder, TASK), values)
    facts = {
        "classes": len(task.labels),
        "train_bytes": sum(len(text.encode()) for text in task.train_texts),
        "test_in_train": _test_in_train(task),
    }
    return facts | {f"{split}_rows": len(task.splits[split]) for split in SPLITS}


def _test_in_train(task: Task) -> int:
    """Count the test rows whose text stands in the training set too, but for case, spaces and signs."""
    train = set(map(_letters, task.train_texts)) - {""}
    return sum(_letters(text) in train for text in task.texts("test"))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def load_task(folder: str) -> Task:
    """Open what `write_task` kept."""
    values = storage.read_record(storage.join(folder, TASK))
    splits = {split: storage.read_table(storage.join(folder, f"{split}.arrow")) for split in SPLITS}
    return Task(
        name="",
        metric=values["metric"],
        labels=tuple(values["labels"]),
        digests=tuple(values["digests"]),
        splits=splits,
    )
