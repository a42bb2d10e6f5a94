"""An experiment: named trainings, made on the cluster that the script has connected to, tracked, and tabulated."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import ray

from tlm_ray import storage
from tlm_ray.parallel import console
from tlm_ray.report import Cell, publish_table
from tlm_ray.runs.execution import Execution, make
from tlm_ray.runs.options import Options
from tlm_ray.runs.pipeline import Flow
from tlm_ray.runs.plan import show
from tlm_ray.runs.preflight import check_cluster, places
from tlm_ray.runs.recipes import Recipe
from tlm_ray.runs.stages import Stage
from tlm_ray.runs.tracking import Tracker, default_uri
from tlm_ray.training.schedules import MODEL


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training of an experiment: a cell's row and task, its recipe and its seed."""

    row: str
    task: str
    recipe: Recipe
    seed: int


def show_plan(trainings: list[Training], options: Options) -> None:
    """Print what a run would make and what it would cost; needs no cluster."""
    flow = options.flow()
    show([_stage(flow, training) for training in trainings], flow.execution)


def run(trainings: list[Training], options: Options, *, name: str) -> "Outcome":
    """Make all trainings and return what they reached; the script has called `ray.init()`.

    What is complete under the root is found. Errors of data, recipe or cluster come before any work; if a training
    fails, the others finish first.
    """
    started = time.monotonic()
    _check_names(trainings)
    flow = options.flow()
    execution = fitted(flow.execution, options)
    check_cluster(execution, options)
    tracker = Tracker.start(name, uri=options.tracking_uri or default_uri())
    flow = replace(flow, execution=execution, callbacks=tracker.callbacks)
    stages = {training: _stage(flow, training) for training in trainings}

    def watch(stage: Stage, record: Mapping[str, Any]) -> None:
        tracker.close(stage, execution.root, record)

    try:
        make(
            list(stages.values()),
            execution.root,
            side_by_side=execution.side_by_side,
            overlap=execution.compute.apart,
            watch=watch,
        )
    except BaseException:
        tracker.fail()
        raise
    console.print(f"{name}: {len(trainings)} trainings in {time.monotonic() - started:.0f} s")
    outcome = Outcome(stages=stages, root=execution.root, tracker=tracker)
    tracker.finish({f"{cell.task}/{cell.row}": cell.mean for cell in outcome.cells()})
    return outcome


def fitted(execution: Execution, options: Options) -> Execution:
    """Fill in the settings that were left to the cluster: retrieval workers, and trainings side by side."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    room = places(execution.compute.resources, nodes) // execution.compute.workers
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in nodes)
    return replace(
        execution, workers=options.workers or max(1, cpus), side_by_side=options.side_by_side or max(1, room)
    )


def _check_names(trainings: list[Training]) -> None:
    """ValueError if two tasks would be one column of the table."""
    tasks = list(dict.fromkeys(training.task for training in trainings))
    columns = [task.rstrip("/").rpartition("/")[2] for task in tasks]
    if len(set(columns)) < len(columns):
        raise ValueError(f"--tasks {' '.join(tasks)}: two have the same name, which is their column; rename a folder")


def _stage(flow: Flow, training: Training) -> Stage:
    return flow.tlm(training.recipe, training.task, training.seed)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment's trainings reached, read from their records."""

    stages: Mapping[Training, Stage]
    root: str
    tracker: Tracker

    def facts(self, training: Training) -> dict[str, Any]:
        """Return one training's scores and costs: dev, test, flops, flops_counted, data_bytes, seconds.

        stage_one_dev: the score of stage one's own task head at its end, None where it has none.
        """
        upstream = {stage.name: stage for stage in self.stages[training].upstream()}
        facts = {name: (stage.record(self.root) or {}).get("facts", {}) for name, stage in upstream.items()}
        trained = [name for name in ("stage_one", "stage_two") if name in upstream]
        counted = [facts[name].get("flops_counted", 0) for name in trained]
        general = sum(facts.get("neighbours", {}).get("rank_bytes", [])[: training.recipe.k])
        history = facts.get("stage_one", {}).get("history", [{}])
        return {
            "stage_one_dev": history[-1].get("dev"),
            "dev": facts["metrics"]["dev"],
            "test": facts["metrics"]["test"],
            "metric": facts["metrics"]["metric"],
            "flops": sum(6.0 * upstream[name].cost["tokens"] * facts[name]["parameters"] for name in trained),
            "flops_counted": sum(counted) if all(counted) else 0,  # 0 where a stage's are not known
            "data_bytes": general + facts["task"]["train_bytes"],
            "seconds": sum(facts[name]["seconds"] for name in trained),
        }

    def model(self, training: Training) -> str:
        """Return the folder of a training's model, which opens as AutoModelForSequenceClassification."""
        upstream = {stage.name: stage for stage in self.stages[training].upstream()}
        return storage.join(upstream["stage_two"].folder(self.root), MODEL)

    def publish(self, out: str) -> dict[str, str]:
        """Write the table as Markdown, CSV, JSON and a figure under `out`, track them, and return their locations."""
        files = publish_table(self.cells(), storage.absolute(out))
        self.tracker.attach(files.values())
        return files

    def cells(self) -> list[Cell]:
        """Return the table's cells, in the order of the trainings, seeds united."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for training in self.stages:
            groups.setdefault((training.row, training.task), []).append(self.facts(training))
        return [
            Cell(
                row=row,
                task=task.rstrip("/").rpartition("/")[2],
                metric=seeds[0]["metric"],
                scores=tuple(seed["test"] for seed in seeds),
                dev_scores=tuple(seed["dev"] for seed in seeds),
                flops=fmean(seed["flops"] for seed in seeds),
                flops_counted=fmean(seed["flops_counted"] for seed in seeds),
                data_bytes=round(fmean(seed["data_bytes"] for seed in seeds)),
                wall_s=fmean(seed["seconds"] for seed in seeds),
            )
            for (row, task), seeds in groups.items()
        ]
