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
from tlm_ray.corpus.scores import METRICS, REGRESSION

SPLITS = ("train", "dev", "test")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "validation", "valid"), "test": ("test",)}


@dataclass(frozen=True, kw_only=True)
class HubTask:
    """Where a named task lies on the Hugging Face hub and what its columns are called there."""

    uri: str
    metric: str = "macro_f1"
    text: str = "text"
    text_pair: str = ""
    label: str = "label"
    files: tuple[str, str, str] = ("train.csv", "dev.csv", "test.csv")


def _paper(name: str, metric: str = "macro_f1") -> HubTask:
    return HubTask(uri=f"hf://datasets/yxchar/{name}-tlm", metric=metric)


def _glue(name: str, metric: str, text: str, text_pair: str = "", dev: str = "validation") -> HubTask:
    files = (
        "train-00000-of-00001.parquet",
        f"{dev}-00000-of-00001.parquet",
        f"{dev}-00000-of-00001.parquet",
    )
    uri = f"hf://datasets/nyu-mll/glue/{name}"
    return HubTask(uri=uri, metric=metric, text=text, text_pair=text_pair, files=files)


# The authors' published files (paper.md: README of the released code) and GLUE, whose test labels are secret: there the
# dev set stands in for the test set, as in the paper's table 10.
HUB_TASKS = {
    "ag": _paper("ag"),
    "hyp": _paper("hyp"),
    "amazon": _paper("amazon"),
    "imdb": _paper("imdb"),
    "citation_intent": _paper("citation_intent"),
    "sciie": _paper("sciie"),
    "chemprot": _paper("chemprot", "micro_f1"),
    "rct-20k": _paper("rct-20k", "micro_f1"),
    "cola": _glue("cola", "matthews", "sentence"),
    "sst2": _glue("sst2", "accuracy", "sentence"),
    "mrpc": _glue("mrpc", "accuracy_f1", "sentence1", "sentence2"),
    "qqp": _glue("qqp", "accuracy_f1", "question1", "question2"),
    "mnli": _glue("mnli", "accuracy", "premise", "hypothesis", dev="validation_matched"),
    "qnli": _glue("qnli", "accuracy", "question", "sentence"),
    "rte": _glue("rte", "accuracy", "sentence1", "sentence2"),
    "stsb": _glue("stsb", "pearson_spearman", "sentence1", "sentence2"),
}

ALIASES = {
    "agnews": "ag",
    "ag_news": "ag",
    "hyperpartisan": "hyp",
    "hyperpartisan_news": "hyp",
    "helpfulness": "amazon",
    "acl-arc": "citation_intent",
    "acl_arc": "citation_intent",
    "scierc": "sciie",
    "rct": "rct-20k",
}


def known_name(task: str) -> str:
    """Return the name by which a task of the paper's or GLUE's is known here, whatever its case; others unchanged."""
    return ALIASES.get(task.lower(), task.lower())


@dataclass(frozen=True, kw_only=True)
class Task:
    """A labelled task, read and checked.

    `splits` maps train, dev and test to tables of text (string), text_pair (string, empty where there is none) and
    label (int64, an index into `labels`; in a regression, whose `labels` are empty, float64). `digests` are the sha256
    of its three files, its identity.
    """

    name: str
    metric: str
    labels: tuple[str, ...]
    digests: tuple[str, str, str]
    splits: dict[str, pa.Table] = field(compare=False, repr=False)

    @cached_property
    def train_texts(self) -> list[str]:
        """The training texts, both sides of a pair as one text: the retrieval queries."""
        return self.texts("train")

    def texts(self, split: str) -> list[str]:
        """Return one text a row of a split, both sides of a pair joined by a space."""
        columns = (self.splits[split][name].to_pylist() for name in ("text", "text_pair"))
        return [f"{text} {pair}".rstrip() for text, pair in zip(*columns, strict=True)]


def read_task(name: str, *, task_root: str = "", metric: str = "") -> Task:
    """Read and check a task: a folder's location, a name below `task_root`, or a name of the paper's or GLUE's tasks.

    ValueError or FileNotFoundError names the file, the row and the fix: missing column, empty text, a label in dev or
    test that train does not have, fewer than two classes, a label that is no number where `metric` is of regression.
    """
    short = storage.without_query(name).rstrip("/").rpartition("/")[2]
    hub = HUB_TASKS.get(known_name(short), HubTask(uri=""))
    if task_root:
        source = HubTask(uri=storage.join(task_root, name), metric=hub.metric)
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
    metric = metric or source.metric
    numbers = metric in REGRESSION
    labels = () if numbers else _labels(tables["train"], files["train"])
    return Task(
        name=short,
        metric=_known_metric(metric, labels, files["train"]),
        labels=labels,
        digests=tuple(storage.digest(uri) for uri in files.values()),  # type: ignore[arg-type]
        splits={
            split: _measured(table, files[split]) if numbers else _number(table, labels, files[split])
            for split, table in tables.items()
        },
    )


def _known_metric(metric: str, labels: tuple[str, ...], uri: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r}: allowed are {', '.join(METRICS)}")
    if metric == "accuracy_f1" and len(labels) > 2:
        raise ValueError(f"metric 'accuracy_f1' is for 2 classes, file {uri!r} has {len(labels)}; use 'macro_f1'")
    return metric


def _split_files(source: HubTask) -> dict[str, str]:
    """Find a task folder's train, dev (or validation, valid) and test file by name; a hub task says its own."""
    if source in HUB_TASKS.values():
        return {s: storage.join(source.uri, f) for s, f in zip(SPLITS, source.files, strict=True)}
    found: dict[str, str] = {}
    for file in storage.list_files(source.uri):
        stem = storage.without_query(file.uri).rpartition("/")[2].partition(".")[0]
        for split, names in SPLIT_NAMES.items():
            if stem in names:
                if split in found:
                    raise ValueError(
                        f"task folder {source.uri!r} has two {split} files: {found[split]}, {file.uri}; keep one"
                    )
                found[split] = file.uri
    missing = [split for split in SPLITS if split not in found]
    if missing:
        raise FileNotFoundError(
            f"task folder {source.uri!r} has no {' and no '.join(missing)} file; "
            "it needs train, dev and test, each .parquet, .csv or .jsonl"
        )
    return {split: found[split] for split in SPLITS}


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


TASK = "task.json"


def write_task(folder: str, task: Task) -> dict[str, int]:
    """Keep a checked task in a stage's folder; returns the number of classes and rows."""
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
    }
    return facts | {f"{split}_rows": len(task.splits[split]) for split in SPLITS}


def load_task(folder: str) -> Task:
    """Open what `write_task` kept."""
    values = storage.read_json(storage.join(folder, TASK))
    splits = {split: storage.read_table(storage.join(folder, f"{split}.arrow")) for split in SPLITS}
    return Task(
        name=values["name"],
        metric=values["metric"],
        labels=tuple(values["labels"]),
        digests=tuple(values["digests"]),
        splits=splits,
    )
