"""Lay out the stages of a student: stage two learns soft labels, the mean predictions of several trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.runs.flow import work
from tlm_ray.runs.flow.each_stage import MODELS
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stage, Stages

# Spliced rows per training row, which the teachers label too. With more to learn, stage two is twice as long; at `mini`
# a student costs 1.25 trainings.
SPLICES = 3
LONGER = 2


def taught_stages(flow: Flow, recipe: Recipe, task_name: str, seed: int, teachers: Sequence[int]) -> Stages:
    """Lay out a student that starts from stage one of its own seed; soft labels are not smoothed further.

    teachers: the seeds of trainings of the same recipe.
    """
    own, recipe = flow.stages(recipe, task_name, seed), recipe.settled(gpu=flow.execution.compute.gpu)
    trained = [flow.stages(recipe, task_name, teacher).last for teacher in teachers]
    taught = soft_labels(flow, recipe, own.blocks, trained)
    longer = {name: LONGER * getattr(recipe.stage_two, name) for name in ("steps", "warmup_steps", "evaluate_every")}
    learner = replace(
        recipe, labels=replace(recipe.labels, smoothing=0.0), stage_two=replace(recipe.stage_two, **longer)
    )
    begins = own.stages_one[-1] if own.stages_one else None
    stage_two = flow.stage_two(learner, own.blocks, begins, seed, taught)
    return replace(own, stage_two=stage_two, metrics=flow.metrics(recipe, own.blocks, stage_two=stage_two))


def soft_labels(flow: Flow, recipe: Recipe, blocks: Stage, teachers: Sequence[Stage]) -> Stage:
    """Return the stage of soft labels: teachers' predictions for training texts, and for texts spliced from them."""
    compute = flow.execution.compute
    names = [f"teacher_{number}" for number in range(len(teachers))]

    def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
        return parallel.on_worker(
            work.write_soft_labels,
            folder,
            inputs["blocks"],
            [storage.join(inputs[name], MODELS[stage.name]) for name, stage in zip(names, teachers, strict=True)],
            resources=dict(compute.resources),
            splices=SPLICES,
            precision=recipe.precision,
            device="cuda" if compute.gpu else "cpu",
            threads=1,
        )

    return Stage(
        name="soft_labels",
        version=2,
        parameters={"precision": recipe.precision, "splices": SPLICES},
        inputs={"blocks": blocks} | dict(zip(names, teachers, strict=True)),
        make=make,
        lane="train",
        cost={"seconds": 30.0},
    )
