"""The flow as stages: from a corpus and a task to a score.

    documents -> passages -> statistics -> neighbours -> tokenizer -> blocks -> stage_one -> stage_two -> metrics
                    task ------^---------------^------------^

`tlm` returns the last stage of one training; stages that trainings share have equal fingerprints and are made once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.corpus import docstrings
from tlm_ray.corpus.manifest import Corpus, open_corpus
from tlm_ray.corpus.passages import cut_passages
from tlm_ray.corpus.tasks import Task, load_task, read_task, write_task
from tlm_ray.report.flops import training_flops
from tlm_ray.retrieval.counting import collect_statistics
from tlm_ray.retrieval.drawn import draw_random, resample
from tlm_ray.retrieval.neighbours import find_neighbours
from tlm_ray.runs import work
from tlm_ray.runs.execution import Execution
from tlm_ray.runs.recipes import Recipe
from tlm_ray.runs.scaling import recipe_parameters
from tlm_ray.runs.stages import Stage
from tlm_ray.training.schedules import CHECKPOINTS, MODEL, Schedule
from tlm_ray.training.train import train_stage_one, train_stage_two

EMBEDDED = "docstrings"  # the name of the embedded corpus and of its task
Callbacks = Callable[[str], list[Any]]


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Where the data comes from and how stages are made; its methods build stages.

    corpus: the general corpus, None for the embedded one. task_root: the folder of named tasks, "" for the hub.
    metric: of the tasks, instead of their own.
    callbacks: given a training's folder, returns the Ray Train callbacks that follow it.
    """

    execution: Execution
    corpus: Corpus | None = None
    task_root: str = ""
    metric: str = ""
    callbacks: Callbacks = lambda folder: []

    def documents(self) -> Stage:
        """The embedded corpus and task, made of the docstrings of installed packages."""
        return Stage(
            name="documents",
            version=2,
            parameters={"packages": docstrings.installed_packages(), "seed": 0},
            make=lambda folder, _: work.write_docstrings(folder, workers=self.execution.workers),
        )

    def passages(self, recipe: Recipe) -> Stage:
        """The corpus cut into passages."""
        run, tokens = self.execution, recipe.passage_tokens
        options: dict[str, Any] = {"passage_tokens": tokens, "workers": run.workers}
        if self.corpus is None:
            return Stage(
                name="passages",
                version=2,
                parameters={"passage_tokens": tokens},
                inputs={"documents": self.documents()},
                make=lambda folder, inputs: cut_passages(
                    folder,
                    open_corpus(storage.join(inputs["documents"], "corpus"), column="text"),
                    **options,
                ),
            )
        corpus = self.corpus
        return Stage(
            name="passages",
            version=2,
            parameters={"passage_tokens": tokens, "column": corpus.column, "corpus": corpus.digest},
            make=lambda folder, _: cut_passages(folder, corpus, **options),
            cost={"bytes": corpus.size},
        )

    def task(self, name: str) -> Stage:
        """A task, read and checked. One of files is checked now; the embedded one when its documents are made."""
        if name == EMBEDDED and not self.task_root:
            return Stage(
                name="task",
                version=1,
                parameters={"name": EMBEDDED, "metric": "accuracy"},
                inputs={"documents": self.documents()},
                make=lambda folder, inputs: write_task(
                    folder, read_task(storage.join(inputs["documents"], "task"), metric="accuracy")
                ),
            )
        task = task_once(name, self.task_root, self.metric)
        return Stage(
            name="task",
            version=1,
            parameters={
                "name": task.name,
                "metric": task.metric,
                "labels": task.labels,
                "digests": task.digests,
            },
            make=lambda folder, _: write_task(folder, task),
        )

    def statistics(self, recipe: Recipe) -> Stage:
        """Document frequencies and mean length over the whole corpus."""
        run = self.execution
        return Stage(
            name="statistics",
            version=2,
            parameters={"analyzer": recipe.analyzer},
            inputs={"passages": self.passages(recipe)},
            make=lambda folder, inputs: collect_statistics(
                folder,
                inputs["passages"],
                analyzer=recipe.analyzer,
                shards=run.shards,
                workers=run.workers,
            ),
        )

    def neighbours(self, recipe: Recipe, task: Stage) -> Stage:
        """The passages that the method chose for the task's training texts, ranked."""
        run = self.execution
        if recipe.method in ("random", "dsir"):
            return self._drawn(recipe, task)
        dense = recipe.method == "dense"
        needs = {"encoder": _source(recipe.encoder)} if dense else {"analyzer": recipe.analyzer}
        inputs = {"passages": self.passages(recipe), "task": task}
        return Stage(
            name="neighbours",
            version=3,
            parameters={"method": recipe.method, "depth": recipe.depth} | needs,
            inputs=inputs if dense else inputs | {"statistics": self.statistics(recipe)},
            make=lambda folder, inputs: find_neighbours(
                folder,
                inputs["passages"],
                load_task(inputs["task"]),
                method=recipe.method,
                depth=recipe.depth,
                analyzer=recipe.analyzer,
                statistics=inputs.get("statistics", ""),
                encoder=recipe.encoder,
                shards=run.shards,
                workers=run.workers,
                gpus=run.compute.resources.get("GPU", 0) if dense else 0,
            ),
        )

    def _drawn(self, recipe: Recipe, task: Stage) -> Stage:
        """As many passages as BM25 chose, drawn at random or by importance for the task."""
        run = self.execution
        options: dict[str, Any] = {"seed": 0, "shards": run.shards, "workers": run.workers}
        inputs = {
            "passages": self.passages(recipe),
            "bm25": self.neighbours(replace(recipe, method="bm25"), task),
        }

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            if recipe.method == "random":
                return draw_random(folder, inputs["passages"], inputs["bm25"], **options)
            return resample(folder, inputs["passages"], inputs["bm25"], load_task(inputs["task"]), **options)

        return Stage(
            name="neighbours",
            version=1,
            parameters={"method": recipe.method, "seed": 0},
            inputs=inputs if recipe.method == "random" else inputs | {"task": task},
            make=make,
        )

    def tokenizer(self, recipe: Recipe, task: Stage) -> Stage:
        """The tokenizer of a selection and a task."""
        trained = recipe.tokenizer == "trained"
        parameters = {"name": "trained", "vocabulary": recipe.vocabulary} if trained else _source(recipe.tokenizer)
        text = self._text(recipe, task) if trained else {}
        return Stage(
            name="tokenizer",
            version=1,
            parameters=parameters,
            inputs={"task": task} | text,
            make=lambda folder, inputs: parallel.on_worker(
                work.write_tokenizer,
                folder,
                dict(inputs),
                name=recipe.tokenizer,
                vocabulary=recipe.vocabulary,
            ),
        )

    def blocks(self, recipe: Recipe, task: Stage) -> Stage:
        """Token blocks of the selection and of the task."""
        lengths: dict[str, Any] = {"block_tokens": recipe.block_tokens, "task_tokens": recipe.task_tokens}
        return Stage(
            name="blocks",
            version=2,
            parameters=lengths,
            inputs={"task": task, "tokenizer": self.tokenizer(recipe, task)} | self._text(recipe, task),
            make=lambda folder, inputs: parallel.on_worker(work.write_blocks, folder, dict(inputs), **lengths),
        )

    def _text(self, recipe: Recipe, task: Stage) -> dict[str, Stage]:
        return {"neighbours": self.neighbours(recipe, task)} if recipe.uses_general else {}

    def stage_one(self, recipe: Recipe, task: Stage, seed: int) -> Stage:
        """Training on general and task batches.

        Without general text k, rho1 and method fall away: such recipes are one training.
        """
        run, schedule = self.execution, recipe.stage_one
        assert schedule is not None, "a recipe without stage one begins with stage two"
        encoder = recipe.start or recipe.architecture
        identity: dict[str, Any] = {"geometry": recipe.geometry}
        if encoder:
            identity = {"start" if recipe.start else "architecture": _source(encoder)}
        parameters: dict[str, Any] = {
            "schedule": schedule,
            "rho2": recipe.rho2,
            "weighting": recipe.weighting,
            "precision": recipe.precision,
            "seed": seed,
            "k": recipe.k if recipe.uses_general else 0,
            "rho1": recipe.rho1 if recipe.uses_general else 0,
        }
        return Stage(
            name="stage_one",
            version=2,
            parameters=parameters | identity,
            inputs={"blocks": self.blocks(recipe, task)},
            make=lambda folder, inputs: train_stage_one(
                folder,
                inputs["blocks"],
                geometry=recipe.geometry,
                start=recipe.start,
                architecture=recipe.architecture,
                compute=run.compute,
                callbacks=self.callbacks(folder),
                **parameters,
            ),
            lane="train",
            scratch=CHECKPOINTS,
            cost=_training_cost(recipe, schedule, recipe.block_tokens),
        )

    def stage_two(self, recipe: Recipe, task: Stage, seed: int) -> Stage:
        """Training on the task alone, from stage one or from a pretrained encoder."""
        run = self.execution
        parameters: dict[str, Any] = {"schedule": recipe.stage_two, "precision": recipe.precision, "seed": seed}
        start = {} if recipe.stage_one is None else {"stage_one": self.stage_one(recipe, task, seed)}
        return Stage(
            name="stage_two",
            version=2,
            parameters=parameters | ({} if start else {"start": _source(recipe.start)}),
            inputs={"blocks": self.blocks(recipe, task)} | start,
            make=lambda folder, inputs: train_stage_two(
                folder,
                inputs["blocks"],
                storage.join(inputs["stage_one"], MODEL) if start else recipe.start,
                compute=run.compute,
                callbacks=self.callbacks(folder),
                **parameters,
            ),
            lane="train",
            scratch=CHECKPOINTS,
            cost=_training_cost(recipe, recipe.stage_two, recipe.task_tokens),
        )

    def tlm(self, recipe: Recipe, task_name: str, seed: int) -> Stage:
        """One training's last stage: its scores on dev and test."""
        task = self.task(task_name)
        resources = self.execution.compute.resources
        options = {
            "precision": recipe.precision,
            "device": "cuda" if resources.get("GPU") else "cpu",
            "threads": 1,
        }
        return Stage(
            name="metrics",
            version=1,
            parameters={"precision": recipe.precision},
            inputs={
                "blocks": self.blocks(recipe, task),
                "stage_two": self.stage_two(recipe, task, seed),
            },
            make=lambda folder, inputs: parallel.on_worker(
                work.write_scores,
                folder,
                inputs["blocks"],
                storage.join(inputs["stage_two"], MODEL),
                resources=resources,
                **options,
            ),
            lane="train",
        )


@lru_cache(maxsize=64)
def task_once(name: str, task_root: str, metric: str = "") -> Task:
    """Read a task once a process: all trainings of an experiment see the same files."""
    return read_task(name, task_root=task_root, metric=metric)


def _training_cost(recipe: Recipe, schedule: Schedule, tokens: int) -> dict[str, float]:
    """Tokens and FLOPs as the paper counts them (note to table 2)."""
    if recipe.start or recipe.architecture:  # the size is not known before they are opened
        return {"tokens": schedule.steps * schedule.batch_rows * tokens}
    size = {"steps": schedule.steps, "batch_rows": schedule.batch_rows, "block_tokens": tokens}
    return {
        "tokens": schedule.steps * schedule.batch_rows * tokens,
        "flops": training_flops(**size, parameters=recipe_parameters(recipe)),
    }


def _source(name: str) -> dict[str, Any]:
    """Identify a tokenizer or encoder: a local folder by its files' digests, a hub name by name."""
    if not storage.exists(name):
        return {"name": name}
    files = {
        storage.name_below(storage.base_of(name), file.uri): storage.digest(file.uri)
        for file in storage.list_files(name)
    }
    return {"files": files}
