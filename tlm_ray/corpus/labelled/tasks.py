"""Read and check labelled tasks: files of texts and labels, as train, dev and test.

Labels come from the training rows, never from code; for a regression they are numbers. All errors of a task are raised
here, before any expensive work starts. Assumptions about its files are noted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.general.dialects import dialect_of
from tlm_ray.corpus.general.documents import file_format
from tlm_ray.corpus.labelled.class_names import check_names, names_in
from tlm_ray.corpus.labelled.hub import HUB_TASKS, USUAL, HubTask, known_name, short_name
from tlm_ray.corpus.labelled.marks import Marks, tags_of
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_files import SPLITS, Files, is_table, located, split_files
from tlm_ray.corpus.labelled.task_rows import as_rows, check_labels, read_file
from tlm_ray.corpus.labelled.task_splits import COLUMN, RULE, cut, split_column
from tlm_ray.corpus.labelled.text_groups import count_seen
from tlm_ray.evaluation.scores import Metric, metric_named

TASK = "task.json"
UNNAMED = Columns()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A labelled task, read and checked."""

    name: str
    """its short name; "" for a stored task, whose content does not depend on the name"""
    metric: str
    """name of its metric"""
    labels: tuple[str, ...]
    """the classes, in the order of their ids; empty for a regression"""
    digests: tuple[str, str, str]
    """the task's identity: digests of the files of train, dev and test, and of how they were read"""
    splits: dict[str, pa.Table] = field(compare=False, repr=False)
    """train, dev and test: text and text_pair (strings, "" for a missing second text) and label (int64 class ids, or
    float64 for a regression)"""
    columns: Columns = field(default=USUAL, compare=False)
    """names of the columns in its files"""
    unused: tuple[str, ...] = field(default=(), compare=False)
    """columns of its files that are not read"""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """assumptions about its files, in words"""

    @cached_property
    def train_texts(self) -> list[str]:
        """The training texts; both texts of a pair are joined."""
        return self.texts("train")

    @cached_property
    def tags(self) -> Marks | None:
        """The tags that mark spans of the training texts; None without tags."""
        return tags_of(self.train_texts)

    @property
    def query_texts(self) -> list[str]:
        """The training texts as retrieval queries: without tags, because a corpus has none."""
        return [self.tags.removed(text) for text in self.train_texts] if self.tags else self.train_texts

    @cached_property
    def has_pairs(self) -> bool:
        """Whether dev or test has pairs of texts."""
        return any(any(self.splits[split]["text_pair"].to_pylist()) for split in ("dev", "test"))

    @property
    def held_out(self) -> list[str]:
        """The texts of dev and test, which no selection may have, also without tags; of a pair, also each text."""
        columns = ("text", "text_pair") if self.has_pairs else ()
        single = [self.splits[split][name].to_pylist() for split in ("dev", "test") for name in columns]
        texts = sum(single, self.texts("dev") + self.texts("test"))
        return texts + [self.tags.removed(text) for text in texts] if self.tags else texts

    def texts(self, split: str) -> list[str]:
        """Return one text per row of a split; both texts of a pair are joined by a space."""
        columns = (self.splits[split][name].to_pylist() for name in ("text", "text_pair"))
        return [f"{text} {pair}".rstrip() for text, pair in zip(*columns, strict=True)]


def read_task(name: str, *, task_root: str = "", metric: str | Metric = "", columns: Columns = UNNAMED) -> Task:
    """Read and check a task: a location, a name below `task_root`, or a name of the paper's or GLUE's tasks.

    A location is a folder with files of train, dev and test, or one file. A missing dev or test set is split off train
    (`task_splits`). metric: a name or a Metric of your own, which also decides whether labels are classes or numbers;
    "" for the task's own. columns: names of the columns of text and label; unnamed ones are found by name.

    ValueError or FileNotFoundError names the file, the rows and the fix. Errors are a missing column, an empty text,
    fewer than two classes, and a label of dev or test that train lacks. For a regression, so is a label that is not a
    number.
    """
    source = _source(name, task_root, columns)
    files = split_files(source)
    scored_by = metric_named(metric or source.metric)
    by_label = not scored_by.is_regression
    read = _read(files, source.columns, numbers=not by_label)
    splits = {split: pa.concat_tables(tables) for split, tables in read.parts.items()}
    missing = [split for split in SPLITS if split not in splits]
    made, rule = cut(splits["train"], missing, by_label=by_label) if missing else ({}, RULE)
    splits |= made
    first = files["train"][0]
    labels = _labels(splits["train"], first, read) if by_label else ()
    _check_classes(scored_by, labels, first)
    _check_cut(splits, missing, read.columns, first, by_label=by_label)
    for uri, table in read.files if by_label else ():
        check_labels(table, labels, uri)
    _check_scored(read, labels, files)
    return Task(
        name=short_name(name),
        metric=scored_by.name,
        labels=labels,
        digests=_digests(files, read, USUAL if source in HUB_TASKS.values() else read.columns, rule),
        splits={split: _numbered(splits[split], labels) for split in SPLITS},
        columns=read.columns,
        unused=read.unused,
        notes=(*_notes(files, read, source.columns, splits), *_class_of_f1(scored_by, labels)),
    )


def _source(name: str, task_root: str, columns: Columns) -> HubTask:
    """Return a task's location, default metric and columns."""
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


class _Read(NamedTuple):
    """What a task's files have."""

    columns: Columns
    """columns of the first training file"""
    files: list[tuple[str, pa.Table]]
    """each file with its rows as strings"""
    parts: dict[str, list[pa.Table]]
    """the tables of each split"""
    names: tuple[str, ...]
    """names of the classes in the metadata of the first training file, by their numbers"""
    unused: tuple[str, ...]
    """columns of the first training file that no one reads"""
    by_column: bool
    """whether a column tells the split of each row"""


def _read(files: Files, columns: Columns, *, numbers: bool) -> _Read:
    """Read all files; a single one may have a column of splits."""
    uri = files["train"][0]
    first = read_file(uri)
    own = columns.found(first, uri)
    tables = {each: first if each == uri else read_file(each) for uris in files.values() for each in uris}
    rows = {each: as_rows(table, own.found(table, each), each, numbers=numbers) for each, table in tables.items()}
    told = split_column(first, uri) if len(tables) == 1 else {}
    parts = {split: [rows[each] for each in uris] for split, uris in files.items()}
    if told:
        parts = {split: [rows[uri].take(told[split])] for split in SPLITS if split in told}
    used = {own.text, own.label, own.text_pair} | ({COLUMN} if told else set())
    unused = tuple(name for name in first.column_names if name not in used and name.strip().lower() not in used)
    names = () if numbers else names_in(first, own.label)
    return _Read(own, list(rows.items()), parts, names, unused, bool(told))


def _check_cut(
    splits: Mapping[str, pa.Table], missing: Sequence[str], columns: Columns, uri: str, *, by_label: bool
) -> None:
    """Raise ValueError if a split cut off train has too few rows for a score."""
    for split in missing:
        if len(splits[split]) < (1 if by_label else 2):
            labels = len(set(splits["train"]["label"].to_pylist()))
            raise ValueError(
                f"file {uri!r}: too few rows to cut {split} from: column {columns.label!r}, taken for the label, has "
                f"{labels:,} values in {sum(map(len, splits.values())):,} rows; a class needs three different texts to "
                "give one. Name another column (--label), add rows, or give dev and test files"
            )
        if by_label and len(classes := set(splits[split]["label"].to_pylist())) < 2:
            raise ValueError(
                f"file {uri!r}: too few rows to cut {split} from: only class {classes.pop()!r} has three different "
                "texts or more; add rows, or give dev and test files"
            )


def _check_scored(read: _Read, labels: tuple[str, ...], files: Files) -> None:
    """Raise ValueError if dev or test has rows of one class alone, on which all models would be equal."""
    for split in ("dev", "test"):
        found = {label for table in read.parts.get(split, ()) for label in table["label"].to_pylist()}
        uri = files.get(split, files["train"])[0]
        if labels and len(found) == 1:
            raise ValueError(
                f"file {uri!r}: {split} has one class only, {found.pop()!r}; add rows of another, or leave {split} out"
            )


def _check_classes(metric: Metric, labels: tuple[str, ...], uri: str) -> None:
    if metric.name == "accuracy_f1" and len(labels) > 2:
        raise ValueError(f"metric 'accuracy_f1' is for 2 classes, file {uri!r} has {len(labels)}; use 'macro_f1'")


def _labels(train: pa.Table, uri: str, read: _Read) -> tuple[str, ...]:
    """Return the classes of the training rows, in the file's own order, by value if all are integers, or by name."""
    found = set(train["label"].to_pylist())
    check_names(found, read.columns.label, uri)
    if len(found) < 2:
        raise ValueError(
            f"file {uri!r}: column label has one class only, {found.pop()!r}; classification needs two or more"
        )
    if found <= set(read.names):
        return tuple(name for name in read.names if name in found)
    if all(re.fullmatch("-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def _digests(files: Files, read: _Read, columns: Columns, rule: int) -> tuple[str, str, str]:
    """Return each split's identity; for one file with the usual columns, it is the file's sha256.

    rule: of splits that were cut off train.
    """
    tables = [uri for uri, _ in read.files if file_format(uri) == "csv"]
    by_line_ends = any(dialect_of(uri, whole=True).by_line_ends for uri in tables)
    by_all_quotes = any(dialect_of(uri, whole=True).quoted != dialect_of(uri).quoted for uri in tables)

    def of(split: str) -> str:
        found = [storage.digest(uri) for uri in files.get(split, files["train"])]
        said: list[Any] = [] if columns.usual else [asdict(columns)]
        said += [] if len(files) == len(SPLITS) else [rule, sorted(files), split]
        said += [COLUMN] if read.by_column else []
        said += [list(read.names)] if read.names else []
        said += ["line ends"] if by_line_ends else []
        said += ["all quotes"] if by_all_quotes else []  # earlier versions read the first megabytes alone
        return found[0] if len(found) == 1 and not said else sha256(json.dumps([found, *said]).encode()).hexdigest()

    train, dev, test = map(of, SPLITS)
    return train, dev, test


def _notes(files: Files, read: _Read, asked: Columns, splits: Mapping[str, pa.Table]) -> Iterator[str]:
    """Yield a note per assumption about the files: CSV dialect, columns, names of classes, splits."""
    for uri, _ in read.files:
        if file_format(uri) == "csv" and (words := dialect_of(uri, whole=True).words):
            yield f"{uri.rpartition('/')[2]}: {words}"
    if not read.columns.usual and read.columns != asked:
        yield f"columns: {read.columns.words}"
    rows = ", ".join(f"{len(table):,} {split}" for split, table in splits.items())
    if read.by_column:
        yield f"column {COLUMN!r} tells the split of each row: {rows} rows"
    missing = [split for split in SPLITS if split not in read.parts]
    if missing:
        yield f"no {' and no '.join(missing)} file: a tenth of the texts each, drawn by their hashes: {rows} rows"


def _class_of_f1(metric: Metric, labels: tuple[str, ...]) -> list[str]:
    """Return a note on the class whose F1 counts, unless the classes are 0 and 1, which choose it."""
    if metric.name != "accuracy_f1" or labels == ("0", "1"):
        return []
    return [
        f"accuracy_f1 has the F1 of class {labels[1]!r}, not of {labels[0]!r}; labels of 0 and 1 choose it: 1 counts"
    ]


def _numbered(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Return rows with class ids as labels, or with numbers if there are no classes."""
    values = table["label"].to_pylist()
    if not labels:
        return table.set_column(2, "label", pa.array(map(float, values), pa.float64()))
    index = {label: i for i, label in enumerate(labels)}
    return table.set_column(2, "label", pa.array([index[value] for value in values], pa.int64()))


def write_task(folder: str, task: Task) -> dict[str, int]:
    """Write a checked task to a stage's folder; return counts of classes, rows, bytes, and test rows seen in train."""
    for split, table in task.splits.items():
        storage.write_table(storage.join(folder, f"{split}.arrow"), table)
    values = {"metric": task.metric, "labels": task.labels, "digests": task.digests}
    storage.write_record(storage.join(folder, TASK), values)
    facts = {
        "classes": len(task.labels),
        "train_bytes": sum(len(text.encode()) for text in task.train_texts),
        "test_in_train": count_seen(task.texts("test"), task.train_texts),
    }
    return facts | {f"{split}_rows": len(task.splits[split]) for split in SPLITS}


def load_task(folder: str) -> Task:
    """Read a task by `write_task`."""
    values = storage.read_record(storage.join(folder, TASK))
    splits = {split: storage.read_table(storage.join(folder, f"{split}.arrow")) for split in SPLITS}
    return Task(
        name="",
        metric=values["metric"],
        labels=tuple(values["labels"]),
        digests=tuple(values["digests"]),
        splits=splits,
    )
