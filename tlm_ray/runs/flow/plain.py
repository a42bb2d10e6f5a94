"""Lay out the stages of a row that trains no encoder."""

from dataclasses import dataclass

from tlm_ray import parallel
from tlm_ray.plain import PlainClassifier
from tlm_ray.plain.classifier import write_scores
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class PlainStages:
    """The stages of a plain classifier, which reads only the task."""

    task: Stage
    metrics: Stage
    trained: tuple[Stage, ...] = ()
    """no stage trains an encoder"""


def plain_stages(flow: Flow, classifier: PlainClassifier, task_name: str) -> PlainStages:
    """Lay out a plain classifier on a task."""
    task = flow.task(task_name)
    metrics = Stage(
        name="metrics",
        version=classifier.version,
        parameters={"classifier": classifier.identity} | flow.scoring,
        inputs={"task": task},
        make=lambda folder, inputs: parallel.on_worker(
            write_scores, folder, inputs["task"], classifier, metric=flow.metric
        ),
        lane="plain",
        cost={"seconds": 10.0},
    )
    return PlainStages(task=task, metrics=metrics)
