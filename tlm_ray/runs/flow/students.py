"""Lay out the stages of a student: stage two learns soft labels, the mean predictions of trained models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.runs.flow import work
from tlm_ray.runs.flow.each_stage import MODELS
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stage, Stages
from tlm_ray.storage.digests import identity_of
from tlm_ray.training.objectives import Mlm, Objective
from tlm_ray.training.settings import MODEL


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """Who teaches a student, and what it learns from them; with more rows stage two is longer.

    The defaults cost 1.25 trainings at `mini`.
    """

    seeds: tuple[int, ...] = ()
    """trainings of the student's own recipe, or of `recipe`"""
    recipe: Recipe | None = None
    """another recipe of the teachers, of any tokenizer"""
    models: tuple[str, ...] = ()
    """further teachers: folders or URIs of trained encoders, of any tokenizer, or of linear models"""
    splices: int = 3
    """spliced rows per training row"""
    passages: int = 0
    """blocks of retrieved passages per training row"""
    replacements: int = 0
    """rows with replaced words per training row, as in TinyBERT. Stage one of seed 0 replaces them for students of all
    seeds, so that teachers read them once"""
    longer: int = 2
    """steps of stage two, as a multiple of the recipe's"""

    def __post_init__(self) -> None:
        if not self.seeds and (not self.models or self.recipe is not None):
            raise ValueError("teaching: has no teacher; give seeds, of a recipe or the student's own, or models")
        if not isinstance(self.models, tuple):
            raise ValueError(f"teaching: models {self.models!r}: must be a tuple of locations")
        for name, least in (("splices", 0), ("passages", 0), ("replacements", 0), ("longer", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"teaching: {name} {getattr(self, name)}: must be {least} or more")

    @classmethod
    def by_others(cls, **teachers: Any) -> "Teaching":
        """Return a teaching by other models than the student's own trainings: with replaced words, and 4x the steps.

        Beside 2x the steps without such rows, students of five MiniLMs gained 1.1 points on chemprot's dev set (0.2 to
        1.9). On sciie's no gain is shown, +0.6 (-1.1 to 2.3; RECORDS.md).
        """
        return cls(replacements=3, longer=4, **teachers)

    @property
    def teachers(self) -> int:
        """The number of teachers."""
        return len(self.seeds) + len(self.models)


def taught_stages(flow: Flow, recipe: Recipe, task_name: str, seed: int, teaching: Teaching) -> Stages:
    """Lay out a student that starts from stage one of its own seed; soft labels are not smoothed further.

    ValueError if the recipe cannot make the rows that are asked for.
    """
    if teaching.replacements and not isinstance(_exported(recipe), Mlm):
        raise ValueError("teaching: replacements need a stage one that exports an Mlm; give replacements=0")
    if teaching.passages and (not recipe.uses_general or recipe.tasks):
        raise ValueError("teaching: passages need general text of one task; give k above 0, or passages=0")
    own, recipe = flow.stages(recipe, task_name, seed), recipe.settled(gpu=flow.execution.compute.gpu)
    trained = [flow.stages(teaching.recipe or recipe, task_name, teacher).last for teacher in teaching.seeds]
    taught = soft_labels(flow, recipe, flow.stages(recipe, task_name, 0), trained, teaching)
    schedule = recipe.stage_two
    longer = {name: teaching.longer * getattr(schedule, name) for name in ("steps", "warmup_steps", "evaluate_every")}
    learner = replace(
        recipe, labels=replace(recipe.labels, smoothing=0.0), stage_two=replace(recipe.stage_two, **longer)
    )
    begins = own.stages_one[-1] if own.stages_one else None
    stage_two = flow.stage_two(learner, own.blocks, begins, seed, taught)
    return replace(own, stage_two=stage_two, metrics=flow.metrics(recipe, own.blocks, stage_two=stage_two))


def _exported(recipe: Recipe) -> Objective | None:
    """Return the objective with whose model the recipe's stage two begins; None without a stage one."""
    if recipe.stage_one is not None:
        return recipe.settings_one(0).exports[MODEL]
    return _exported(recipe.after) if recipe.after else None


def soft_labels(flow: Flow, recipe: Recipe, first: Stages, teachers: Sequence[Stage], teaching: Teaching) -> Stage:
    """Return the stage of soft labels: teachers' predictions for training texts and rows made from them.

    It is the same for students of all seeds: `first` is the one of seed 0, whose stage one replaces words.
    """
    compute = flow.execution.compute
    identities = list(map(identity_of, teaching.models))
    reads_texts = bool(teaching.models or teaching.recipe)
    further = {name: asked for name in ("passages", "replacements") if (asked := getattr(teaching, name))}
    written_by = first.stages_one[-1] if teaching.replacements else None
    marks = getattr(recipe.labels, "marks", ()) if teaching.replacements or reads_texts else ()
    names = [f"teacher_{number}" for number in range(len(teachers))]

    def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
        return parallel.on_worker(
            work.write_soft_labels,
            folder,
            inputs["blocks"],
            [
                *(storage.join(inputs[name], MODELS[stage.name]) for name, stage in zip(names, teachers, strict=True)),
                *teaching.models,
            ],
            resources=dict(compute.resources),
            task=inputs.get("task", ""),
            splices=teaching.splices,
            passages=teaching.passages,
            replacements=teaching.replacements,
            mlm=storage.join(inputs["mlm"], MODEL) if written_by else "",
            marks=marks,
            precision=recipe.precision,
            device="cuda" if compute.gpu else "cpu",
            threads=1,
        )

    return Stage(
        name="soft_labels",
        version=2,
        parameters={"precision": recipe.precision, "splices": teaching.splices}
        | further
        | ({"marks": marks} if marks else {})
        | ({"models": identities} if identities else {}),
        inputs={"blocks": first.blocks}
        | ({"task": first.task} if reads_texts else {})
        | ({"mlm": written_by} if written_by else {})
        | dict(zip(names, teachers, strict=True)),
        make=make,
        lane="train",
        cost={"teachers": teaching.teachers, "seconds": 30.0 * teaching.teachers},  # at `mini`: 23 to 36 s each
    )
