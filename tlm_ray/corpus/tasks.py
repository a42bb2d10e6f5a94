"""Labelled tasks: a folder (or hub dataset) with train, dev and test files of text, label and perhaps text_pair.

Labels are found in the training file, never hard-coded; with a metric of regression they are numbers. Everything that
can be wrong with a task is found here, before any expensive work starts.
"""

import math
import re
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.documents import as_strings, file_format, read_columns
from tlm_ray.corpus.hub import HUB_TASKS, HubTask, known_name, short_name
from tlm_ray.corpus.scores import Metric, metric_named
from tlm_ray.listing import base_of, list_files, name_below

SPLITS = ("train", "dev", "test")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "validation", "valid"), "test": ("test",)}
SHARD = re.compile(r"(\w+)-\d+-of-(\d+)")  # a data set's files as the hub writes them
TASK = "task.json"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A labelled task, read and checked."""

    name: str
    """its short name"""
    metric: str
    """the name of its metric"""
    labels: tuple[str, ...]
    """the classes, in the order of their ids; empty in a regression"""
    digests: tuple[str, str, str]
    """sha256 of the files of train, dev and test: the task's identity"""
    splits: dict[str, pa.Table] = field(compare=False, repr=False)
    """train, dev and test: text and text_pair (strings, a pair's second is "" where there is none) and label (int64
    class ids, or float64 in a regression)"""

    @cached_property
    def train_texts(self) -> list[str]:
        """The training texts, both sides of a pair as one text: the retrieval queries."""
        return self.texts("train")

    def texts(self, split: str) -> list[str]:
        """Return one text per row of a split, both sides of a pair joined by a space."""
        columns = (self.splits[split][name].to_pylist() for name in ("text", "text_pair"))
        return [f"{text} {pair}".rstrip() for text, pair in zip(*columns, strict=True)]


def read_task(name: str, *, task_root: str = "", metric: str | Metric = "") -> Task:
    """Read and check a task: a folder's location, a name below `task_root`, or a name of the paper's or GLUE's tasks.

    metric: a name or a Metric of your own, which also says whether labels are classes or numbers; "" for the task's.
    ValueError or FileNotFoundError names the file, the row and the fix: missing column, empty text, a label in dev or
    test that train does not have, fewer than two classes, a label that is no number where `metric` is of regression.
    """
    short = short_name(name)
    hub = HUB_TASKS.get(known_name(short), HubTask(uri=""))
    if task_root:
        source = HubTask(uri=_below(task_root, name), metric=hub.metric)
    elif "/" in name:
        source = HubTask(uri=name, metric=hub.metric)
    elif hub.uri:
        source = hub
    else:
        raise ValueError(
            f"task {name!r}: known names are {', '.join(HUB_TASKS)}; for your own give its folder or --task-root"
        )
    files = _split_files(source)
    tables = {split: _read_split(uri, source) for split, uri in files.items()}
    scored_by = metric_named(metric or source.metric)
    labels = () if scored_by.is_regression else _labels(tables["train"], files["train"])
    _check_classes(scored_by, labels, files["train"])
    return Task(
        name=short,
        metric=scored_by.name,
        labels=labels,
        digests=tuple(storage.digest(uri) for uri in files.values()),  # type: ignore[arg-type]
        splits={
            split: _measured(table, files[split]) if scored_by.is_regression else _number(table, labels, files[split])
            for split, table in tables.items()
        },
    )


def _below(root: str, name: str) -> str:
    """Return the location of a task below the root; FileNotFoundError lists the tasks that are there."""
    uri = storage.join(root, name)
    if list_files(uri, missing_ok=True):
        return uri
    names = [name_below(base_of(root), file.uri) for file in list_files(root, missing_ok=True)]
    tasks = sorted({name.rpartition("/")[0] for name in names if short_name(name).partition(".")[0] == "train"})
    raise FileNotFoundError(f"task {name!r}: no file there; --task-root {root!r} has {', '.join(tasks) or 'no task'}")


def _check_classes(metric: Metric, labels: tuple[str, ...], uri: str) -> None:
    if metric.name == "accuracy_f1" and len(labels) > 2:
        raise ValueError(f"metric 'accuracy_f1' is for 2 classes, file {uri!r} has {len(labels)}; use 'macro_f1'")


def _split_files(source: HubTask) -> dict[str, str]:
    """Find a task folder's train, dev (or validation, valid) and test file by name; a hub task says its own."""
    if source in HUB_TASKS.values():
        return {s: storage.join(source.uri, f) for s, f in zip(SPLITS, source.files, strict=True)}
    found: dict[str, str] = {}
    for file in list_files(source.uri):
        split = _split_of(file.uri, source.uri)
        if split in found:
            raise ValueError(f"task folder {source.uri!r} has two {split} files: {found[split]}, {file.uri}; keep one")
        if split:
            found[split] = file.uri
    missing = [split for split in SPLITS if split not in found]
    if missing:
        raise FileNotFoundError(
            f"task folder {source.uri!r} has no {' and no '.join(missing)} file; "
            "it needs train, dev and test, each .parquet, .csv or .jsonl"
        )
    return {split: found[split] for split in SPLITS}


def _split_of(uri: str, folder: str) -> str:
    """Return the split that a file's name says, "" for any other file; ValueError for a shard of several."""
    stem = short_name(uri).partition(".")[0]
    shard = SHARD.fullmatch(stem)
    split = next((split for split, names in SPLIT_NAMES.items() if (shard[1] if shard else stem) in names), "")
    if split and shard and int(shard[2]) != 1:
        raise ValueError(
            f"task folder {folder!r}: file {uri!r} is one of {int(shard[2])} shards; put a split's shards together "
            "into one file"
        )
    return split


def _read_split(uri: str, source: HubTask) -> pa.Table:
    """Read one file as text, text_pair and label, all strings; empty text or label is an error with its row."""
    table = _read_all(uri)
    pair = source.text_pair or ("text_pair" if "text_pair" in table.column_names else "")
    wanted = {"text": source.text, "label": source.label} | ({"text_pair": pair} if pair else {})
    for column in wanted.values():
        if column not in table.column_names:
            raise ValueError(
                f"file {uri!r} has no column {column!r}, only {', '.join(table.column_names)}; "
                "a task has text, label and, for pairs, text_pair"
            )
    columns = {name: as_strings(table[column], column, uri) for name, column in wanted.items()}
    for name, column in columns.items():
        for row, value in enumerate(column.to_pylist()):
            if value is None or not value.strip():
                raise ValueError(f"file {uri!r}, row {row}: {name} is empty; fill it in or take the row out")
    columns.setdefault("text_pair", pa.array([""] * len(table)))
    return pa.table({name: columns[name] for name in ("text", "text_pair", "label")})


def _read_all(uri: str) -> pa.Table:
    if file_format(uri) == "text":
        raise ValueError(f"file {uri!r}: a task's files are .parquet, .csv or .jsonl, with columns text and label")
    batches = list(read_columns(uri))
    if not sum(len(batch) for batch in batches):
        raise ValueError(f"file {uri!r} has no rows; a task needs examples in train, dev and test")
    return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive")


def _labels(train: pa.Table, uri: str) -> tuple[str, ...]:
    """Return the classes found in the training file: by value where all are integers, else by name."""
    found = set(train["label"].to_pylist())
    if len(found) < 2:
        raise ValueError(
            f"file {uri!r}: column label has one class only, {found.pop()!r}; classification needs two or more"
        )
    if all(re.fullmatch("-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def _number(table: pa.Table, labels: tuple[str, ...], uri: str) -> pa.Table:
    index = {label: i for i, label in enumerate(labels)}
    numbers = []
    for row, label in enumerate(table["label"].to_pylist()):
        if label not in index:
            raise ValueError(
                f"file {uri!r}, row {row}: label {label!r} is not among the training file's "
                f"{', '.join(labels)}; mend it or add training examples of it"
            )
        numbers.append(index[label])
    return table.set_column(2, "label", pa.array(numbers, pa.int64()))


def _measured(table: pa.Table, uri: str) -> pa.Table:
    """Read the labels of a regression."""
    numbers = []
    for row, label in enumerate(table["label"].to_pylist()):
        try:
            numbers.append(float(label))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise ValueError(f"file {uri!r}, row {row}: label {label!r} is not a number, which a regression needs")
    return table.set_column(2, "label", pa.array(numbers, pa.float64()))


def write_task(folder: str, task: Task) -> dict[str, int]:
    """Keep a checked task in a stage's folder; returns how many classes, rows, bytes, and test rows that train has."""
    for split, table in task.splits.items():
        storage.write_table(storage.join(folder, f"{split}.arrow"), table)
    values = {
        "name": task.name,
        "metric": task.metric,
        "labels": task.labels,
        "digests": task.digests,
    }
    storage.write_json(storage.join(folder, TASK), values)
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
    values = storage.read_json(storage.join(folder, TASK), fix=storage.MAKE_ANEW)
    splits = {split: storage.read_table(storage.join(folder, f"{split}.arrow")) for split in SPLITS}
    return Task(
        name=values["name"],
        metric=values["metric"],
        labels=tuple(values["labels"]),
        digests=tuple(values["digests"]),
        splits=splits,
    )
