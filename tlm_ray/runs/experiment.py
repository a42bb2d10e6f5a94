"""An experiment: named trainings, made on the cluster that the script has connected to, tracked, and tabulated."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from rich.markup import escape

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.hub import short_name
from tlm_ray.corpus.predictions import read_predictions
from tlm_ray.corpus.scores import Metric
from tlm_ray.plain import PlainClassifier
from tlm_ray.report import (
    Cell,
    Comparison,
    Predictions,
    Score,
    check_name,
    compare,
    publish_scores,
    publish_table,
)
from tlm_ray.runs.execution import make
from tlm_ray.runs.pipeline import Flow, Stages
from tlm_ray.runs.plain_rows import PlainStages, plain_stages
from tlm_ray.runs.plan import Wanted, show
from tlm_ray.runs.preflight import check_cluster, fitted
from tlm_ray.runs.recipes import Recipe
from tlm_ray.runs.stages import Stage
from tlm_ray.runs.tracking import Tracker, default_uri
from tlm_ray.training.settings import MODEL
from tlm_ray.training.starts import Pretrained


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training of an experiment: a cell's row and task, its recipe and its seed."""

    row: str
    """the table's row"""
    task: str
    """a folder's location, a name below the flow's task_root, or a name of the hub's"""
    recipe: Recipe | PlainClassifier
    """how to train; or a classifier that trains no encoder"""
    seed: int = 0
    """of weights, masks and order of rows"""


def show_plan(trainings: Sequence[Training], flow: Flow) -> None:
    """Print what a run would make and what it would cost; needs no cluster."""
    _check(trainings)
    wanted = [
        Wanted(row=one.row, task=short_name(one.task), seed=one.seed, stage=_stages(flow, one).metrics)
        for one in trainings
    ]
    show(wanted, flow.execution)


def run(trainings: Sequence[Training], flow: Flow, *, name: str, tracking_uri: str = "") -> "Outcome":
    """Make all trainings and return what they reached; the script has called `ray.init()`.

    name: the experiment's, which its tables and its tracking carry. tracking_uri: MLflow server or store, "" for
    `tracking.default_uri`. What is complete under the root is found. Errors of data, recipe or cluster come before any
    work; if a training fails, the others finish first.
    """
    started = time.monotonic()
    check_name(name)
    _check(trainings)
    execution = fitted(flow.execution)
    check_cluster(execution, "" if flow.corpus is None else flow.corpus.uri)
    tracker = Tracker.start(name, uri=tracking_uri or default_uri(), root=execution.root)
    followed = flow.callbacks
    flow = replace(flow, execution=execution, callbacks=lambda stage: [*tracker.callbacks(stage), *followed(stage)])
    stages = {training: _stages(flow, training) for training in trainings}

    for training, own in stages.items():
        method = {"method": training.recipe.method.name} if isinstance(training.recipe, Recipe) else {}
        words = {"row": training.row, "task": short_name(training.task), "seed": training.seed}
        tracker.label(own.metrics, **words, **method)
    try:
        make(
            [own.metrics for own in stages.values()],
            execution.root,
            side_by_side=execution.side_by_side,
            overlap=execution.compute.apart,
            watch=tracker.close,
        )
    except BaseException:
        tracker.fail()
        raise
    console.print(escape(f"{name}: {len(trainings)} trainings in {time.monotonic() - started:.0f} s"))
    outcome = Outcome(name=name, stages=stages, root=execution.root, tracker=tracker, metric=flow.metric)
    tracker.finish({f"{cell.task}/{cell.row}": cell.mean for cell in outcome.cells()})
    return outcome


def _check(trainings: Sequence[Training]) -> None:
    """ValueError if there are none, or if two tasks would be one column of the table."""
    if not trainings:
        raise ValueError("trainings: there are none; give one row, one task and one seed (--seeds 1) at least")
    tasks = list(dict.fromkeys(training.task for training in trainings))
    if len({short_name(task) for task in tasks}) < len(tasks):
        raise ValueError(f"--tasks {' '.join(tasks)}: two have the same name, which is their column; rename a folder")


def _stages(flow: Flow, training: Training) -> Stages | PlainStages:
    recipe = training.recipe
    if isinstance(recipe, PlainClassifier):
        return plain_stages(flow, recipe, training.task)
    return flow.stages(recipe, training.task, training.seed)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment's trainings reached, read from their records."""

    name: str
    """the experiment's, which its files carry"""
    stages: Mapping[Training, Stages | PlainStages]
    """each training's"""
    root: str
    """location of all results"""
    tracker: Tracker
    """the experiment's MLflow run"""
    metric: str | Metric = ""
    """of the flow, "" for each task's own"""

    def facts(self, training: Training) -> dict[str, Any]:
        """Return one training's scores and costs: dev, test, flops, flops_counted, data_bytes, seconds.

        What trains no encoder has 0 FLOPs.
        stage_one_dev: the score of stage one's own task head at its end, None where it has none.
        """
        stages, scores = self.stages[training], self._facts(self.stages[training].metrics)
        trained = [(stage, self._facts(stage)) for stage in stages.trained]
        counted = [facts.get("flops_counted", 0) for _, facts in trained]
        learned = next((facts for stage, facts in trained if stage.name == "stage_one"), {})
        return {
            "stage_one_dev": learned.get("history", [{}])[-1].get("dev"),
            "dev": scores["dev"],
            "test": scores["test"],
            "metric": scores["metric"],
            "flops": sum(6.0 * stage.cost["tokens"] * facts["parameters"] for stage, facts in trained),
            "flops_counted": sum(counted) if all(counted) else 0,  # 0 where a stage's are not known
            "data_bytes": self._facts(stages.task)["train_bytes"] + self._general_bytes(training),
            "seconds": sum(facts["seconds"] for _, facts in trained) if trained else scores["seconds"],
        }

    def _general_bytes(self, training: Training) -> int:
        """Count the selected text that a training learns from."""
        stages, recipe = self.stages[training], training.recipe
        if isinstance(stages, PlainStages) or isinstance(recipe, PlainClassifier):
            return 0
        return sum(self._facts(stages.neighbours).get("rank_bytes", [])[: recipe.k])

    def _facts(self, stage: Stage | None) -> dict[str, Any]:
        """Return a stage's facts, empty where it is not needed or not recorded."""
        return {} if stage is None else (stage.record(self.root) or {}).get("facts", {})

    def model(self, training: Training) -> str:
        """Return the folder of a training's model, which opens as AutoModelForSequenceClassification."""
        stages = self.stages[training]
        if isinstance(stages, PlainStages):
            raise ValueError(f"row {training.row!r}: trains no encoder, so it has no model to open")
        return storage.join(stages.stage_two.folder(self.root), MODEL)

    def comparison(self, row: str) -> Comparison:
        """Return how far a row of the table lies above the others, on test rows, and what of that is shown."""
        grouped = [self._predictions(own) for own in self._cells().values()]
        single = any(len(each.predicted) == 1 and each.is_drawn for each in grouped)
        return Comparison(row=row, differences=tuple(compare(grouped)), are_seeds_known=not single)

    def _predictions(self, trainings: Sequence[Training]) -> Predictions:
        """Read what the trainings of one cell predicted of the test set."""
        first = trainings[0]
        read = [read_predictions(self.stages[one].metrics.folder(self.root), "test") for one in trainings]
        return Predictions(
            row=first.row,
            task=short_name(first.task),
            metric=self.metric or self.facts(first)["metric"],
            gold=read[0].gold,
            predicted=np.array([each.predicted for each in read]),
            is_drawn=isinstance(first.recipe, Recipe),
        )

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know of the tasks: test rows whose text is trained on."""
        tasks = {short_name(one.task): self._facts(stages.task) for one, stages in self.stages.items()}
        return [
            f"{name}: the text of {facts['test_in_train']} of {facts['test_rows']} test rows stands in the training "
            "set too, but for case, spaces and signs"
            for name, facts in tasks.items()
            if facts.get("test_in_train")
        ]

    def publish(self, out: str, comparison: Comparison | None = None) -> dict[str, str]:
        """Write the table under `out`, named after the experiment, track its files, and return their locations."""
        return self._tracked(publish_table(self.name, self.cells(), out, comparison, notes=self.notes))

    def publish_scores(self, scores: Sequence[Score], out: str) -> dict[str, str]:
        """Write a table of scores alone instead, such as an ablation's."""
        return self._tracked(publish_scores(self.name, scores, out))

    def _tracked(self, files: dict[str, str]) -> dict[str, str]:
        self.tracker.attach(files.values())
        return files

    def cells(self) -> list[Cell]:
        """Return the table's cells, in the order of the trainings, seeds united."""
        trained_elsewhere = {
            (training.row, training.task)
            for training in self.stages
            if isinstance(training.recipe, Recipe) and isinstance(training.recipe.start, Pretrained)
        }
        groups = {cell: [self.facts(training) for training in own] for cell, own in self._cells().items()}
        return [
            Cell(
                row=row,
                task=short_name(task),
                metric=seeds[0]["metric"],
                scores=tuple(seed["test"] for seed in seeds),
                dev_scores=tuple(seed["dev"] for seed in seeds),
                flops=fmean(seed["flops"] for seed in seeds),
                flops_counted=fmean(seed["flops_counted"] for seed in seeds),
                data_bytes=round(fmean(seed["data_bytes"] for seed in seeds)),
                wall_s=fmean(seed["seconds"] for seed in seeds),
                pretrained=(row, task) in trained_elsewhere,
            )
            for (row, task), seeds in groups.items()
        ]

    def _cells(self) -> dict[tuple[str, str], list[Training]]:
        """Return the trainings of each row and task, in their order."""
        groups: dict[tuple[str, str], list[Training]] = {}
        for training in self.stages:
            groups.setdefault((training.row, training.task), []).append(training)
        return groups
