"""The command line in groups of flags: data, place, cluster, and the flow that they come to. For experiments alone.

An experiment composes its options of the groups that it uses: a flag that it would ignore does not exist there.
Locations are made absolute when a group is made, and nowhere else, because workers have other working folders.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import tyro
from rich.markup import escape

from tlm_ray import events, storage
from tlm_ray.console import console
from tlm_ray.corpus.manifest import Corpus, open_corpus, united
from tlm_ray.corpus.task_columns import Columns
from tlm_ray.corpus.task_files import is_table
from tlm_ray.runs.data_flow import EMBEDDED
from tlm_ray.runs.execution import Execution
from tlm_ray.runs.pipeline import Flow
from tlm_ray.training.settings import Compute

Options = TypeVar("Options")


def parse(kind: type[Options], description: str | None) -> Options:
    """Read the command line; a field of `kind` that is a group of flags shows under its own title, without a prefix."""
    return tyro.cli(kind, description=description, config=(tyro.conf.OmitArgPrefixes,))


def settle(group: Any, change: Callable[[str], str], *names: str) -> None:
    """Change fields of a frozen group while it is made; empty ones stay empty."""
    for name in names:
        if value := getattr(group, name):
            object.__setattr__(group, name, change(value))


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which tasks, and which general corpus."""

    tasks: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=lambda: [EMBEDDED])
    """names below --task-root, folders or files, or the paper's and GLUE's names; the default is embedded"""
    corpus: Annotated[list[str], tyro.conf.arg(metavar="LOCATION ...")] = field(default_factory=list)
    """general corpus: files, folders, globs or URIs of Parquet, JSONL, CSV or text; the default is embedded"""
    column: str = "text"
    """the corpus' text column"""
    task_root: str = ""
    """folder of named tasks, each with train, dev and test files; the default is the Hugging Face hub"""
    text: str = ""
    """the tasks' column of texts; the default is text, or one whose name says it"""
    label: str = ""
    """their column of labels, likewise"""
    pair: str = ""
    """their column of second texts, for tasks of pairs; the default is text_pair if there is one"""
    metric: str = ""
    """what scores are, instead of the task's own (macro_f1 for a task of yours); pearson_spearman makes a regression"""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("--tasks: name at least one")
        if twice := [task for task, count in Counter(self.tasks).items() if count > 1]:
            raise ValueError(f"--tasks {' '.join(self.tasks)}: {twice[0]} is there twice; name it once")
        if self.metric and EMBEDDED in self.tasks and not self.task_root:
            raise ValueError(f"--metric {self.metric}: the embedded task has accuracy; name a task of yours")
        if self.column != "text" and not self.corpus:
            raise ValueError(f"--column {self.column}: is a column of --corpus; give that too")
        if self.columns != Columns() and EMBEDDED in self.tasks and not self.task_root:
            raise ValueError(f"--tasks {EMBEDDED}: is embedded and has no columns to name; name a task of yours")
        tasks = [
            storage.absolute(task) if ("/" in task or is_table(task)) and not self.task_root else task
            for task in self.tasks
        ]
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "corpus", [storage.absolute(location) for location in self.corpus])
        settle(self, storage.absolute, "task_root")

    @property
    def columns(self) -> Columns:
        """The tasks' columns that are named."""
        return Columns(text=self.text, label=self.label, text_pair=self.pair)


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """Several general corpora, for experiments that compare them."""

    corpora: Annotated[list[str], tyro.conf.arg(metavar="NAME=LOCATION ...")] = field(default_factory=list)
    """corpora by names of your own, instead of --corpus"""
    corpora_column: str = "text"
    """their text column"""

    def opened(self, place: "Folders") -> dict[str, Corpus]:
        """Open each by its name; ValueError for one that is not NAME=LOCATION."""
        found: dict[str, Corpus] = {}
        for pair in self.corpora:
            name, equals, location = pair.partition("=")
            if not (name and equals and location) or name in found:
                raise ValueError(f"--corpora {pair!r}: give NAME=LOCATION, each name once, such as web=s3://bucket/web")
            uri, digests = storage.absolute(location), storage.join(place.root, "corpora.json")
            found[name] = open_corpus(uri, column=self.corpora_column, digests=digests)
        return found


@dataclass(frozen=True, kw_only=True)
class OneTask(Data):
    """Which task, and which general corpus."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.tasks) > 1:
            raise ValueError(f"--tasks {' '.join(self.tasks)}: name one; main_table.py trains several")

    @property
    def task(self) -> str:
        """The task."""
        return self.tasks[0]


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where results go."""

    root: str = ".tlm"
    """where results lie: a folder, or s3://..., gs://... on a cluster"""
    out: str = "results"
    """where tables and figures go"""
    shared_root: bool = False
    """the root is a local path, but one folder on every node (NFS)"""
    log_json: str = ""
    """file that gets a line of JSON for each event, - for stderr"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute, "root", "out")


@dataclass(frozen=True, kw_only=True)
class Place(Folders):
    """Where results go, and who follows."""

    tracking_uri: str = ""
    """MLflow server or store; the default is MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """What the data stages run on."""

    workers: int = 0
    """CPU workers that retrieve; 0 for one per CPU of the cluster"""
    shards: int = 0
    """parts that the corpus is searched in; 0 chooses"""
    autoscaling: bool = False
    """the cluster adds nodes on demand: wait for them instead of refusing"""

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
    """What it runs on; none of this changes a result beyond rounding."""

    train_workers: int = 1
    """workers of one training"""
    train_resources: list[str] = field(default_factory=lambda: ["CPU=1"])
    """Ray resources of one training worker: CPU=1, or CPU=4 GPU=1"""
    micro_rows: int = 0
    """rows that a training worker computes at once, which bounds its memory; 0 for all of a step"""
    packed: bool = False
    """lay a worker's rows one after another instead of padding them"""
    sharded: bool = False
    """share weights and optimizer state out over a training's workers, for models that one GPU cannot hold (FSDP2)"""
    side_by_side: int = 0
    """trainings at once; 0 for as many as the cluster has room for"""

    def execution(self, place: Folders) -> Execution:
        """Return how stages are made, as far as it is known without a cluster."""
        compute = Compute(
            workers=self.train_workers,
            resources=_amounts(self.train_resources),
            micro_rows=self.micro_rows,
            packed=self.packed,
            sharded=self.sharded,
        )
        return replace(super().execution(place), compute=compute, side_by_side=self.side_by_side)


def open_flow(data: Data, place: Folders, workers: Workers, corpora: Corpora | None = None) -> Flow:
    """Open the log and the corpora, which finds what is wrong with them, and return the flow that makes stages."""
    events.write_to(place.log_json)
    named = corpora.opened(place) if corpora else {}
    corpus = None
    if data.corpus:
        digests = storage.join(place.root, "corpora.json")
        corpus = united([open_corpus(uri, column=data.column, digests=digests) for uri in data.corpus])
    elif not named and (data.task_root or data.tasks != [EMBEDDED]):
        console.print("corpus: the docstrings of installed packages; text of your tasks' own kind (--corpus) is better")
    for each in (corpus, *named.values()):
        if each and each.left_out:
            name, about = escape(storage.shown(each.uri)), escape(", ".join(each.left_out))
            console.print(f"corpus {name}: without {about}, which are about it")
    return Flow(
        execution=workers.execution(place),
        corpus=corpus,
        corpora=named,
        task_root=data.task_root,
        metric=data.metric,
        columns=data.columns,
    )


def _amounts(resources: list[str]) -> dict[str, float]:
    """Read NAME=AMOUNT pairs; ValueError names the one that is not."""
    amounts: dict[str, float] = {}
    for pair in resources:
        name, _, text = pair.partition("=")
        try:
            amount = float(text)
        except ValueError:
            amount = math.nan
        if not name or not 0 <= amount < math.inf:
            raise ValueError(f"--train-resources {pair!r}: give NAME=AMOUNT, such as CPU=4 GPU=1")
        if name.upper() in ("CPU", "GPU") and name != name.upper():
            raise ValueError(f"--train-resources {pair!r}: Ray writes it {name.upper()}; give {name.upper()}={text}")
        if name in amounts:
            raise ValueError(f"--train-resources {' '.join(resources)}: {name} is there twice; give it once")
        amounts[name] = amount
    if not any(amounts.values()):
        raise ValueError(f"--train-resources {' '.join(resources)}: a worker needs some of it; give CPU=1")
    return amounts
