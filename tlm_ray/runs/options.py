"""The command line that all experiments share: where things are and what they run on."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Self

import tyro
from rich.markup import escape

from tlm_ray import storage
from tlm_ray.corpus.manifest import open_corpus
from tlm_ray.parallel import console
from tlm_ray.runs.execution import Execution
from tlm_ray.runs.locks import StageLocked
from tlm_ray.runs.pipeline import EMBEDDED, Flow, task_once
from tlm_ray.runs.plan import training_rate
from tlm_ray.runs.recipes import Recipe, recipe_for
from tlm_ray.runs.scaling import recipe_parameters, scaled
from tlm_ray.training.schedules import Schedule
from tlm_ray.training.train import Compute, TrainingStopped

ROOT = ".tlm"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run on which data, and where."""

    scale: str = "tiny"
    """tiny or mini (CPUs: embedded data, real text), small, medium or large (the paper's)"""
    tasks: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=lambda: [EMBEDDED])
    """names below --task-root, folders, or the paper's and GLUE's names; the default is embedded"""
    corpus: str = ""
    """general corpus: file, folder, glob or URI of Parquet, JSONL, CSV or text; the default is embedded"""
    column: str = "text"
    """the corpus' text column"""
    task_root: str = ""
    """folder of named tasks, each with train, dev and test files; the default is the Hugging Face hub"""
    root: str = ROOT
    """where results lie: a folder, or s3://..., gs://... on a cluster"""
    out: str = "results"
    """where tables and figures go"""
    seeds: int = 2
    """trainings of each cell, seeds 0, 1, ..."""
    tracking_uri: str = ""
    """MLflow server or store; the default is MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"""
    dry_run: bool = False
    """list every stage as found or to make, with its cost, and stop"""
    k: int | None = None
    """passages kept a query, instead of the recipe's"""
    depth: int | None = None
    """passages retrieved a query, instead of the largest k asked for"""
    metric: str = ""
    """what scores are, instead of the task's own (macro_f1 for a task of yours); pearson_spearman makes a regression"""
    precision: str = ""
    """fp32 or bf16, instead of the recipe's"""
    rho1: int | None = None
    """general batches a task batch, instead of the recipe's"""
    external_only: bool = False
    """no task batches in stage one (table 5)"""
    rho2: float | None = None
    """weight of the MLM loss in task batches, instead of the recipe's"""
    encoder: str = ""
    """hub name or local folder whose embeddings the method "dense" compares, instead of the recipe's"""
    architecture: str = ""
    """hub name or local folder of the encoder to build from random weights, instead of the recipe's geometry"""
    steps: int | None = None
    """steps of stage one, instead of the recipe's"""
    steps_two: int | None = None
    """steps of stage two, instead of the recipe's"""
    tokens: int | None = None
    """tokens that one training may take over both stages: steps and, if need be, rows a step are cut to it"""
    minutes: float | None = None
    """minutes that one training may take, by the estimate of --dry-run: the recipe is cut to it likewise"""
    workers: int = 0
    """CPU workers that retrieve; 0 for one a CPU of the cluster"""
    shards: int = 0
    """parts that the corpus is searched in; 0 chooses"""
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
    shared_root: bool = False
    """the root is a local path, but one folder on every node (NFS)"""
    autoscaling: bool = False
    """the cluster adds nodes on demand: wait for them instead of refusing"""

    def __post_init__(self) -> None:
        if self.autoscaling and not self.workers:
            raise ValueError("--autoscaling: give --workers too, the CPUs to retrieve with; there may be none yet")
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")
        if self.external_only and self.rho1 is not None:
            raise ValueError(f"--rho1 {self.rho1}: --external-only leaves task batches out; give one of them")
        if self.tokens is not None and self.minutes is not None:
            raise ValueError("--tokens and --minutes: both are a budget; give one of them")
        if not self.tasks:
            raise ValueError("--tasks: name at least one")
        if self.metric and EMBEDDED in self.tasks and not self.task_root:
            raise ValueError(f"--metric {self.metric}: the embedded task has accuracy; name a task of yours")

    def absolute(self) -> Self:
        """Return options whose locations mean the same in every process's working folder."""
        tasks = [storage.absolute(task) if "/" in task and not self.task_root else task for task in self.tasks]
        places: dict[str, str] = {name: getattr(self, name) for name in ("corpus", "task_root", "root", "out")}
        found: dict[str, Any] = {name: storage.absolute(uri) for name, uri in places.items() if uri}
        found |= {name: storage.absolute_if_there(getattr(self, name)) for name in ("encoder", "architecture")}
        return replace(self, tasks=tasks, **found)

    def flow(self, **more: Any) -> Flow:
        """Open corpus and tasks, which finds what is wrong with them, and return the flow that makes stages."""
        root = storage.absolute(self.root)
        corpus = None
        if self.corpus:
            digests = storage.join(root, "corpora.json")
            corpus = open_corpus(storage.absolute(self.corpus), column=self.column, digests=digests)
        task_root = storage.absolute(self.task_root) if self.task_root else ""
        return Flow(execution=self.execution(root), corpus=corpus, task_root=task_root, metric=self.metric, **more)

    def execution(self, root: str) -> Execution:
        """Return how stages are made, as far as it is known without a cluster."""
        return Execution(
            root=root,
            shards=self.shards,
            workers=self.workers or 1,
            compute=Compute(
                workers=self.train_workers,
                resources=_amounts(self.train_resources),
                micro_rows=self.micro_rows,
                packed=self.packed,
                sharded=self.sharded,
            ),
            side_by_side=self.side_by_side or 1,
        )

    def _train_rows(self, task: str) -> int:
        """Count a task's training rows, which decide the recipe of a task that the paper does not have."""
        if task == EMBEDDED and not self.task_root:
            return 0
        task_root = storage.absolute(self.task_root) if self.task_root else ""
        return len(task_once(task, task_root, self.metric).splits["train"])

    def recipe(self, task: str, **changes: Any) -> Recipe:
        """Return a task's recipe with the changes of the command line."""
        recipe = recipe_for(task.rstrip("/").rpartition("/")[2], self.scale, train_rows=self._train_rows(task))
        asked: dict[str, Any] = {"k": self.k, "rho1": self.rho1, "rho2": self.rho2, "precision": self.precision}
        asked |= {name: storage.absolute_if_there(getattr(self, name)) for name in ("encoder", "architecture")}
        asked = {name: value for name, value in asked.items() if value not in (None, "")} | changes
        if self.external_only:
            if changes.get("rho1") is not None:
                raise ValueError(f"rho1 {changes['rho1']}: --external-only leaves task batches out; give one of them")
            asked["rho1"] = None
        for name, steps in (("stage_one", self.steps), ("stage_two", self.steps_two)):
            if steps is not None:
                asked[name] = _shortened(getattr(recipe, name), steps)
        depth = self.depth or max(recipe.depth, asked.get("k", recipe.k))
        changed: dict[str, Any] = {"depth": depth} | asked
        return self._within_budget(replace(recipe, **changed))

    def _within_budget(self, recipe: Recipe) -> Recipe:
        """Cut a recipe down to --tokens or --minutes, and print what that changes."""
        tokens = self.tokens
        if self.minutes is not None:
            if recipe.architecture:
                raise ValueError(f"--minutes {self.minutes}: the speed of --architecture is not known; give --tokens")
            compute = self.execution(storage.absolute(self.root)).compute
            rate = training_rate("stage_one", storage.absolute(self.root), gpu=compute.gpu, workers=compute.workers)
            tokens = int(60 * self.minutes * rate / (6 * recipe_parameters(recipe)))
        if tokens is None:
            return recipe
        recipe, changes = scaled(recipe, tokens)
        for change in changes:
            _print_once(change)
        return recipe


@cache
def _print_once(line: str) -> None:
    console.print(line)  # the rows, tasks and trials of an experiment mostly share a schedule


def _amounts(resources: list[str]) -> dict[str, float]:
    """Read NAME=AMOUNT pairs; ValueError names the one that is not."""
    amounts = {}
    for pair in resources:
        name, _, amount = pair.partition("=")
        try:
            amounts[name] = float(amount)
        except ValueError as error:
            raise ValueError(f"--train-resources {pair!r}: give NAME=AMOUNT, such as CPU=4 GPU=1") from error
    return amounts


def _shortened(schedule: Schedule, steps: int) -> Schedule:
    """Return a schedule of another length, its warm-up in proportion."""
    return replace(schedule, steps=steps, warmup_steps=schedule.warmup_steps * steps // schedule.steps)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Show errors that a user can mend as one message, without a traceback; the process ends with code 2.

    An interrupt ends it with code 130, at once: the stages that run are left as they are, to be continued.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/] run the same command again to go on")
        sys.stdout.flush()
        os._exit(130)  # threads that wait for trainings would hold the process; Ray's processes end with it
    except (ValueError, OSError, ImportError, StageLocked, TrainingStopped) as error:
        console.print(f"[bold red]error[/] {escape(storage.shown(str(error)))}")
        raise SystemExit(2) from error
