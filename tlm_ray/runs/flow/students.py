"""Lay out the stages of a student: stage two learns soft labels, the mean predictions of trained models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.runs.flow import work
from tlm_ray.runs.flow.each_stage import MODELS
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import RECORD, Stage, Stages
from tlm_ray.storage.digests import identity_of
from tlm_ray.training.objectives import Mlm, Objective
from tlm_ray.training.settings import MODEL
from tlm_ray.training.students.soft_labels import chunks_of, write_teacher_labels


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
        for name, least in (("splices", 0), ("replacements", 0), ("longer", 1)):
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
    """Return the stage of soft labels: the mean of what the teachers predict for the rows of a student.

    It is the same for students of all seeds: `first` is the one of seed 0, whose stage one replaces words.
    """
    rows = _rows(flow, recipe, first, teaching)
    labelled = [_labels(flow, recipe, first, rows, each, texts=teaching.recipe is not None) for each in teachers]
    labelled += [_labels(flow, recipe, first, rows, each, texts=True) for each in teaching.models]
    names = [f"teacher_{number}" for number in range(len(labelled))]
    return Stage(
        name="soft_labels",
        version=3,
        parameters={},
        inputs={"blocks": first.blocks, "rows": rows} | dict(zip(names, labelled, strict=True)),
        make=lambda folder, inputs: parallel.on_worker(
            work.write_soft_labels, folder, inputs["blocks"], inputs["rows"], [inputs[name] for name in names]
        ),
        lane="train",
        cost={"seconds": 5.0},
    )


def _rows(flow: Flow, recipe: Recipe, first: Stages, teaching: Teaching) -> Stage:
    """Return the stage of the rows that a student learns, without labels."""
    compute = flow.execution.compute
    asked: dict[str, Any] = {"splices": teaching.splices}
    asked |= {"replacements": teaching.replacements} if teaching.replacements else {}
    asked |= {"marks": marks} if teaching.replacements and (marks := _marks(recipe)) else {}
    written_by = first.stages_one[-1] if teaching.replacements else None
    return Stage(
        name="student_rows",
        version=1,
        parameters=asked,
        inputs={"blocks": first.blocks} | ({"mlm": written_by} if written_by else {}),
        make=lambda folder, inputs: parallel.on_worker(
            work.write_student_rows,
            folder,
            inputs["blocks"],
            resources=dict(compute.resources) if written_by else None,
            mlm=storage.join(inputs["mlm"], MODEL) if written_by else "",
            device="cuda" if compute.gpu else "cpu",
            threads=1,
            **asked,
        ),
        lane="train",
        cost={"seconds": 20.0},
    )


def _labels(flow: Flow, recipe: Recipe, first: Stages, rows: Stage, teacher: Stage | str, *, texts: bool) -> Stage:
    """Return the stage of one teacher's predictions for the rows; texts: it may have another tokenizer, and read text.

    Each teacher has a stage of its own, so that a further one asks nobody again. All nodes label chunks of the rows.
    """
    run = flow.execution
    trained = teacher if isinstance(teacher, Stage) else None
    marks = _marks(recipe) if texts else ()

    def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
        model = storage.join(inputs["teacher"], MODELS[trained.name]) if trained else str(teacher)
        gpus = 0 if is_linear(model) else run.compute.resources.get("GPU", 0)
        device = "cuda" if gpus else "cpu"
        arguments = (model, inputs["blocks"], inputs["rows"], inputs.get("task", ""), marks, recipe.precision, device)
        options: dict[str, Any] = {"workers": run.workers, "gpus": gpus, "title": "label rows", "size": "rows"}
        count = storage.read_record(storage.join(inputs["rows"], RECORD))["facts"]["rows"]
        labelled = parallel.each(chunks_of(count), work.teacher, arguments=arguments, **options)
        return write_teacher_labels(folder, inputs["blocks"], labelled)

    return Stage(
        name="teacher_labels",
        version=1,
        parameters={"precision": recipe.precision}
        | ({"marks": marks} if marks else {})
        | ({} if trained else {"model": identity_of(str(teacher))}),
        inputs={"blocks": first.blocks, "rows": rows}
        | ({"task": first.task} if texts else {})
        | ({"teacher": trained} if trained else {}),
        make=make,
        lane="train",  # so that its tasks find what a training would need
        cost={"seconds": 30.0},  # one of `mini`, on one core: 23 to 36 s; a MiniLM 120 to 920 s
    )


def _marks(recipe: Recipe) -> tuple[str, ...]:
    """Return the signs by which the recipe's texts mark spans; none if it does not read them."""
    return tuple(getattr(recipe.labels, "marks", ()))
