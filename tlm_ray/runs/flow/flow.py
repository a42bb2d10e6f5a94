"""Lay out the flow as stages, from a corpus and a task to a score.

    documents -> passages -> statistics -> neighbours -> tokenizer -> blocks -> stage_one -> stage_two -> metrics
                    task ------^---------------^------------^ --> counts --^

`Flow.stages` lays out one training. Stages that trainings share have equal fingerprints and run once.
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

from tlm_ray.console import print_once
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.runs.flow.each_stage import FlowStages
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stage, Stages


class Found(NamedTuple):
    """A task, with what was retrieved for it."""

    task: Stage
    passages: Stage | None
    neighbours: Stage | None


@dataclass(frozen=True, kw_only=True)
class Flow(FlowStages):
    """The sources of data, the stages made of them, and how they run."""

    @classmethod
    def like(cls, other: "Flow") -> Self:
        """Return a flow of this class with another's fields, for a class of your own."""
        return cls(**{each.name: getattr(other, each.name) for each in fields(Flow)})

    def stages(self, recipe: Recipe, task_name: str, seed: int) -> Stages:
        """Lay out one training, from the top down."""
        recipe = recipe.settled(gpu=self.execution.compute.gpu)
        return self._mixed(recipe, task_name, seed) if recipe.tasks else self._alone(recipe, task_name, seed)

    def _alone(self, recipe: Recipe, task_name: str, seed: int) -> Stages:
        """Lay out a training whose stage one learns the task alone, beside general text."""
        found = self._found(recipe, task_name)
        before = None if recipe.after is None else self.stages(recipe.after, task_name, seed)
        teacher = self.stages(recipe.teacher, task_name, seed) if isinstance(recipe.teacher, Recipe) else None
        given = before or teacher
        tokenizer = given.tokenizer if given else self.tokenizer(recipe, [found.task], found.neighbours)
        blocks = self.blocks(recipe, found.task, found.neighbours, tokenizer)
        counts = None if recipe.counts is None else self.counts(recipe, recipe.counts, blocks)
        earlier = before.stages_one[-1] if before else None
        stage_one = None
        if recipe.stage_one is not None:
            taught_by = teacher.stages_one[-1] if teacher else None
            stage_one = self.stage_one(recipe, blocks, counts, seed, after=earlier, teacher=taught_by)
        stage_two = None if recipe.one_stage else self.stage_two(recipe, blocks, stage_one or earlier, seed)
        scored = {"stage_one": stage_one if recipe.one_stage else None, "stage_two": stage_two}
        return Stages(
            **found._asdict(),
            tokenizer=tokenizer,
            blocks=blocks,
            counts=counts,
            stage_one=stage_one,
            stage_two=stage_two,
            metrics=self.metrics(recipe, blocks, **scored),
            before=before,
        )

    def _mixed(self, recipe: Recipe, task_name: str, seed: int) -> Stages:
        """Lay out a training whose stage one learns several tasks; the task itself need not be among them.

        General text is in the first task's blocks: what was retrieved for all of them. Token counts are of these.
        """
        several = [self._found(recipe, name) for name in recipe.tasks]
        tasks, own = [found.task for found in several], self.task(task_name)
        chosen = [found.neighbours for found in several if found.neighbours]
        # the dev and test texts of a task that is new in stage two are kept out of stage one, too
        held_out = [*tasks, *([own] if own.fingerprint not in {task.fingerprint for task in tasks} else [])]
        united = self.united(chosen, held_out, reading=self.reading(*recipe.tasks, task_name)) if chosen else None
        tokenizer = self.tokenizer(recipe, tasks, united)
        first, *further = (self.blocks(recipe, task, None if i else united, tokenizer) for i, task in enumerate(tasks))
        counts = None if recipe.counts is None else self.counts(recipe, recipe.counts, first)
        stage_one = self.stage_one(recipe, first, counts, seed, further=further)
        blocks = {task.fingerprint: made for task, made in zip(tasks, [first, *further], strict=True)}
        mine = blocks.get(own.fingerprint) or self.blocks(recipe, own, None, tokenizer)
        stage_two = self.stage_two(recipe, mine, stage_one, seed)
        return Stages(
            task=own,
            passages=several[0].passages,
            neighbours=united,
            tokenizer=tokenizer,
            blocks=mine,
            counts=counts,
            stage_one=stage_one,
            stage_two=stage_two,
            metrics=self.metrics(recipe, mine, stage_two=stage_two),
        )

    def _found(self, recipe: Recipe, task_name: str) -> Found:
        """Lay out a task, and the retrieval for it."""
        recipe = replace(recipe, method=recipe.method.of_task(short_name(task_name)))
        task = self.task(task_name)
        if not recipe.uses_general:
            return Found(task, None, None)
        if self.corpus_of(recipe) is None and not self.is_embedded(task_name):
            print_once("corpus: the docstrings of installed packages; text like your tasks' (--corpus) works better")
        passages = self.passages(recipe)
        return Found(task, passages, self.neighbours(recipe, passages, task, reading=self.reading(task_name)))
