"""Run an experiment: named trainings on the connected cluster, tracked in MLflow and shown as tables."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.markup import escape

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.report import check_name
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.planning.estimates import stage_seconds
from tlm_ray.runs.planning.plan import Wanted, show
from tlm_ray.runs.preflight import check_cluster, check_starts, encoders_of, fitted
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.registry import note
from tlm_ray.runs.stages.stage import Stage, Stages
from tlm_ray.runs.stages.why import reasons
from tlm_ray.runs.tracking.tracked import recipe_words
from tlm_ray.training.objectives.marked_labels import MarkedLabels
from tlm_ray.training.objectives.written import Written

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

Last = Callable[[Stages | PlainStages], Stage]  # selects the requested one of a training's stages


def show_plan(
    trainings: Sequence[Training],
    flow: Flow,
    *,
    last: Last = lambda stages: stages.metrics,
    price: float | None = None,
) -> None:
    """Print the stages that a run would need and their cost; needs no cluster.

    Times are those of recorded stages under the root. price: per GPU or CPU hour.
    """
    _check(trainings)
    wanted = [
        Wanted(row=one.row, task=short_name(one.task), seed=one.seed, stage=last(one.stages(flow))) for one in trainings
    ]
    show(wanted, flow.execution, price=price)


def show_reasons(trainings: Sequence[Training], flow: Flow, *, last: Last = lambda stages: stages.metrics) -> None:
    """Print why stages must run; needs no cluster."""
    _check(trainings)
    found = reasons([last(one.stages(flow)) for one in trainings], Records(flow.execution.root))
    for reason in found:
        console.print(escape(f"{reason.stage.name:<10} {reason.stage.fingerprint[:8]}  {reason.words}"))
    if not found:
        console.print("nothing is to make: all results are there")


def run(
    trainings: Sequence[Training],
    flow: Flow,
    *,
    name: str,
    tracking_uri: str = "",
    log_models: bool = False,
    ensembles: Sequence[str] = (),
    pooled: bool = False,
) -> Outcome:
    """Run all trainings and return their results; the script must have called `ray.init()`.

    Complete stages under the root are reused. Errors of data, recipe or cluster are raised before any work. If a
    training fails, the others finish first.

    name: name of the experiment in tables and tracking. tracking_uri: MLflow server or store, "" for
    `tracking.default_uri`. log_models: also log the encoders to MLflow. ensembles: rows whose ensembles over seeds the
    table has too; they need no training. pooled: also ensembles with the linear model that is best on the task's dev
    set.
    """
    started = time.monotonic()
    check_name(name)
    _check(trainings)
    flow, tracker = opened(name, flow, tracking_uri)
    execution = flow.execution
    stages = {training: training.stages(flow) for training in trainings}
    for training, own in stages.items():
        words = {"row": training.row, "task": short_name(training.task), "seed": training.seed}
        tracker.label(own.metrics, recipe_words(training.recipe), **words)
    lasts, records = [own.metrics for own in stages.values()], tracker.records
    note(execution.root, name, lasts)
    named = [(recipe, own) for one, own in stages.items() for recipe in one.recipes if encoders_of(recipe)]
    try:
        check_starts([recipe for recipe, own in named if records.of(own.metrics) is None], execution)
        make(
            lasts,
            execution.root,
            side_by_side=execution.side_by_side,
            overlap=execution.compute.apart,
            watch=tracker.close,
            expected=stage_seconds(lasts, records, execution.compute),
            known=records,
        )
        outcome = Outcome(
            name=name,
            stages=stages,
            records=records,
            tracker=tracker,
            metric=flow.metric,
            ensembles=tuple(ensembles),
            pooled=pooled,
            compute=execution.compute,
        )
        scores = _scores(outcome)
    except BaseException:
        tracker.fail()
        raise
    console.print(escape(f"{name}: {len(trainings)} trainings in {time.monotonic() - started:.0f} s"))
    tracker.finish(scores)
    for training, own in stages.items() if log_models else ():
        if isinstance(own, Stages):
            _log_model(outcome, training)
    return outcome


def _log_model(outcome: Outcome, training: Training) -> None:
    """Log a training's encoder to MLflow, if transformers has a pipeline for it."""
    if isinstance(training.recipe, Recipe) and not has_pipeline(training.recipe):
        told = f"tracking: transformers has no pipeline for the model of {training.row!r}; it stays in "
        console.print(escape(told + storage.shown(outcome.model(training))))
    else:
        outcome.log_model(training)


def has_pipeline(recipe: Recipe) -> bool:
    """Return whether MLflow can log a recipe's model; those that write labels or read marks need code of their own."""
    return not isinstance(recipe.labels, (Written, MarkedLabels))


def _scores(outcome: Outcome) -> dict[str, float]:
    """Return each row's mean test score and the test score of its best seed on dev, by names for MLflow's charts."""
    scores: dict[str, float] = {}
    for cell in outcome.cells():
        scores[f"test/{cell.row} on {cell.task}"] = cell.mean
        if len(cell.scores) > 1:
            best = max(range(len(cell.scores)), key=cell.dev_scores.__getitem__)
            scores[f"test of best on dev/{cell.row} on {cell.task}"] = cell.scores[best]
    return scores


def opened(name: str, flow: Flow, tracking_uri: str, *, key: str = "") -> "tuple[Flow, Tracker]":
    """Check the cluster and open the experiment's MLflow run; return the flow with both set, and the tracker.

    key: see `Tracker`.
    """
    from tlm_ray.runs.tracking.tracker import (  # here, because MLflow takes 0.7 s that a dry run saves
        Tracker,
        default_uri,
    )

    execution = fitted(flow.execution)
    check_cluster(execution, [place for corpus in flow.all_corpora for place in corpus.locations])
    tracker = Tracker.start(name, uri=tracking_uri or default_uri(), root=execution.root, key=key)
    others = flow.followers
    flow = replace(flow, execution=execution, followers=lambda stage: [partial(tracker.follow, stage), *others(stage)])
    return flow, tracker


def _check(trainings: Sequence[Training]) -> None:
    """Raise ValueError if there are no trainings, or if two tasks would share a column of the table."""
    if not trainings:
        raise ValueError("trainings: there are none; give one row, one task and one seed (--seeds 1) at least")
    tasks = list(dict.fromkeys(training.task for training in trainings))
    if len({short_name(task) for task in tasks}) < len(tasks):
        raise ValueError(f"--tasks {' '.join(tasks)}: two have the same name, which is their column; rename a folder")
