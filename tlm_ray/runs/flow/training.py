"""Define one training of an experiment: its row, task and stages."""

from collections.abc import Sequence
from dataclasses import dataclass

from tlm_ray.plain import PLAIN, PlainClassifier
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.plain import PlainStages, plain_stages
from tlm_ray.runs.flow.students import Teaching, taught_stages
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stages


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training of an experiment: a cell's row and task, its recipe and its seed."""

    row: str
    """name of the row in the table"""
    task: str
    """the task: location of its folder, name below the flow's task_root, or hub name"""
    recipe: Recipe | PlainClassifier
    """the recipe, or a classifier that trains no encoder"""
    seed: int = 0
    """seed of initial weights, masks and the order of rows"""
    teaching: Teaching | None = None
    """teachers, whose soft labels stage two learns instead of the labels"""

    @property
    def recipes(self) -> list[Recipe | PlainClassifier]:
        """The recipe, and that of its teachers if it is another."""
        taught_by = self.teaching.recipe if self.teaching else None
        return [self.recipe, *([taught_by] if taught_by else [])]

    def stages(self, flow: Flow) -> Stages | PlainStages:
        """Lay out the stages of the training."""
        if isinstance(self.recipe, PlainClassifier):
            return plain_stages(flow, self.recipe, self.task)
        if self.teaching:
            return taught_stages(flow, self.recipe, self.task, self.seed, self.teaching)
        return flow.stages(self.recipe, self.task, self.seed)


def plain_trainings(flow: Flow, tasks: Sequence[str]) -> list[Training]:
    """Return one training per plain classifier and suitable task."""
    texts = {task: () if flow.is_embedded(task) else flow.read(task).train_texts for task in tasks}
    return [Training(row=one.name, task=task, recipe=one) for one in PLAIN for task in tasks if one.suits(texts[task])]
