"""Command-line options of experiments, in groups: data, folders, cluster; and the `Flow` that they open.

An experiment uses only the groups it needs, so it has no flag that it ignores. Locations become absolute when a group
is created, because workers run in other working folders.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import tyro

from tlm_ray import events, storage
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.corpus.general.manifest import Corpus, open_corpus, united
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_files import is_table
from tlm_ray.runs.cli.hints import hint
from tlm_ray.runs.flow.data import EMBEDDED
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.making import Execution

Options = TypeVar("Options")


def parse(kind: type[Options], description: str | None) -> Options:
    """Parse the command line into `kind`; flags of nested groups get a title of their own and no prefix."""
    try:
        return tyro.cli(kind, description=description, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if stop.code:
            hint(sys.argv[1:])
        raise


def settle(group: Any, change: Callable[[str], str], *names: str) -> None:
    """Apply `change` to the named fields of a frozen group during its creation; empty fields stay empty."""
    for name in names:
        if value := getattr(group, name):
            object.__setattr__(group, name, change(value))


def settle_results(group: Any, **defaults: str) -> None:
    """Make the named locations of results absolute; in a job that was submitted to Ray, they must outlast it."""
    for name, default in defaults.items():
        given, option = getattr(group, name), f"--{name.replace('_', '-')}"
        settled = storage.lasting(given, option, default)
        if settled != storage.absolute(given):
            print_once(f"{option}: {storage.shown(settled)}, because Ray deletes its copy of the job's folder")
        object.__setattr__(group, name, settled)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The tasks and the general corpus."""

    tasks: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=lambda: [EMBEDDED])
    """task names (below --task-root, or of the paper or GLUE), folders or files; docstrings is the embedded task"""
    corpus: Annotated[list[str], tyro.conf.arg(metavar="LOCATION ...")] = field(default_factory=list)
    """general corpus: files, folders, globs or URIs of Parquet, JSONL, CSV or text; if unset: the embedded corpus"""
    column: str = "text"
    """text column of the corpus"""
    task_root: str = ""
    """folder with one subfolder per task (train, dev and test files); if unset: the Hugging Face hub"""
    text: str = ""
    """text column of the task files; if unset: text, or found by name"""
    label: str = ""
    """label column of the task files; if unset: label, or found by name"""
    pair: str = ""
    """column of the second text, for sentence-pair tasks; if unset: text_pair if it exists"""
    metric: str = ""
    """metric to report; if unset: the task's own, macro_f1 for your own tasks; pearson_spearman means regression"""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("--tasks: give at least one task")
        if twice := [task for task, count in Counter(self.tasks).items() if count > 1]:
            raise ValueError(f"--tasks {' '.join(self.tasks)}: {twice[0]} is given twice; give it once")
        if self.metric and EMBEDDED in self.tasks and not self.task_root:
            raise ValueError(f"--metric {self.metric}: is for --tasks of your own; the embedded task has accuracy")
        if self.column != "text" and not self.corpus:
            raise ValueError(f"--column {self.column}: names a column of --corpus; give --corpus too")
        if self.columns != Columns() and EMBEDDED in self.tasks and not self.task_root:
            raise ValueError(f"--tasks {EMBEDDED}: has fixed columns; drop --text, --label and --pair")
        tasks = [
            storage.absolute(task) if ("/" in task or is_table(task)) and not self.task_root else task
            for task in self.tasks
        ]
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "corpus", [storage.absolute(location) for location in self.corpus])
        settle(self, storage.absolute, "task_root")

    @property
    def columns(self) -> Columns:
        """The columns given on the command line."""
        return Columns(text=self.text, label=self.label, text_pair=self.pair)


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """Several general corpora, for experiments that compare them."""

    corpora: Annotated[list[str], tyro.conf.arg(metavar="NAME=LOCATION ...")] = field(default_factory=list)
    """several named corpora, instead of --corpus"""
    corpora_column: str = "text"
    """text column of these corpora"""

    def opened(self, place: "Folders") -> dict[str, Corpus]:
        """Open the corpora, by name; ValueError for an entry that is not NAME=LOCATION."""
        found: dict[str, Corpus] = {}
        for pair in self.corpora:
            name, equals, location = pair.partition("=")
            if not (name and equals and location) or name in found:
                raise ValueError(
                    f"--corpora {pair!r}: must be NAME=LOCATION with each name once, such as web=s3://bucket/web"
                )
            uri, digests = storage.absolute(location), storage.join(place.root, "corpora.json")
            found[name] = open_corpus(uri, column=self.corpora_column, digests=digests)
        return found


@dataclass(frozen=True, kw_only=True)
class OneTask(Data):
    """The task and the general corpus."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.tasks) > 1:
            raise ValueError(f"--tasks {' '.join(self.tasks)}: must be one task; main_table.py takes several")

    @property
    def task(self) -> str:
        """The task."""
        return self.tasks[0]


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Locations of results."""

    root: str = ".tlm"
    """folder for results and intermediate stages: local, or s3://... or gs://... on a cluster"""
    out: str = "results"
    """folder for tables and figures"""
    shared_root: bool = False
    """the local --root is a folder shared by all nodes (such as NFS)"""
    log_json: str = ""
    """file to append one JSON line per event to; - for stderr"""

    def __post_init__(self) -> None:
        settle_results(self, root=".tlm", out="results")


@dataclass(frozen=True, kw_only=True)
class Place(Folders):
    """Locations of results and of tracking."""

    tracking_uri: str = ""
    """MLflow server or store; if unset: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Resources of retrieval and the other data stages."""

    workers: int = 0
    """number of CPU workers for retrieval (0: one per CPU of the cluster)"""
    shards: int = 0
    """number of corpus shards (0: automatic)"""
    autoscaling: bool = False
    """the cluster adds nodes on demand: wait for missing resources instead of stopping with an error"""

    def execution(self, place: Folders) -> Execution:
        """Return how stages are made, as far as it is known without a cluster."""
        return Execution(
            root=place.root,
            shared_root=place.shared_root,
            workers=self.workers,
            shards=self.shards,
            autoscaling=self.autoscaling,
        )


@dataclass(frozen=True, kw_only=True)
class Cluster(Workers):
    """Resources of stages and trainings; none of them changes a result beyond rounding."""

    train_workers: int = 1
    """number of workers per training"""
    least_train_workers: int = 0
    """elastic: train with as many workers as there is room for, from this number to --train-workers (0: fixed)"""
    train_resources: list[str] = field(default_factory=lambda: ["CPU=1"])
    """Ray resources per training worker, such as CPU=1, or CPU=4 GPU=1"""
    micro_rows: int = 0
    """rows that a worker processes at once, to limit memory (0: all of a step, on CPUs those of 4,096 tokens)"""
    packed: bool = False
    """pack rows into one sequence instead of padding them"""
    sharded: bool = False
    """shard weights and optimizer state over a training's workers (FSDP2), for models too large for one GPU"""
    side_by_side: int = 0
    """number of trainings to run in parallel (0: as many as fit on the cluster)"""

    def execution(self, place: Folders) -> Execution:
        """Return how stages are made, as far as it is known without a cluster."""
        compute = Compute(
            workers=self.train_workers,
            least_workers=self.least_train_workers,
            resources=_amounts(self.train_resources),
            micro_rows=self.micro_rows,
            packed=self.packed,
            sharded=self.sharded,
        )
        return replace(super().execution(place), compute=compute, side_by_side=self.side_by_side)


def open_flow(data: Data, place: Folders, workers: Workers, corpora: Corpora | None = None) -> Flow:
    """Open the event log and the corpora, which validates them, and return the `Flow` that makes stages."""
    events.write_to(place.log_json)
    named = corpora.opened(place) if corpora else {}
    corpus = None
    if data.corpus:
        digests = storage.join(place.root, "corpora.json")
        corpus = united([open_corpus(uri, column=data.column, digests=digests) for uri in data.corpus])
    for each in (corpus, *named.values()):
        if each and each.left_out:
            print_once(f"corpus {storage.shown(each.uri)}: ignoring {', '.join(each.left_out)} (about the corpus)")
        if each and (words := each.dialect):
            print_once(f"corpus {storage.shown(each.uri)}: {words}")
    return Flow(
        execution=workers.execution(place),
        corpus=corpus,
        corpora=named,
        task_root=data.task_root,
        metric=data.metric,
        columns=data.columns,
    )


def _amounts(resources: list[str]) -> dict[str, float]:
    """Parse NAME=AMOUNT pairs; ValueError names an invalid one."""
    amounts: dict[str, float] = {}
    for pair in resources:
        name, _, text = pair.partition("=")
        try:
            amount = float(text)
        except ValueError:
            amount = math.nan
        if not name or not 0 <= amount < math.inf:
            raise ValueError(f"--train-resources {pair!r}: must be NAME=AMOUNT, such as CPU=4 GPU=1")
        if name.upper() in ("CPU", "GPU") and name != name.upper():
            raise ValueError(f"--train-resources {pair!r}: Ray spells it {name.upper()}; give {name.upper()}={text}")
        if name in amounts:
            raise ValueError(f"--train-resources {' '.join(resources)}: {name} is given twice; give it once")
        amounts[name] = amount
    if not any(amounts.values()):
        raise ValueError(f"--train-resources {' '.join(resources)}: a worker needs more than 0; give CPU=1")
    return amounts
