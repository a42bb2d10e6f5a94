"""Give a recipe the steps that cost as many counted operations as another's, in both stages."""

from dataclasses import replace
from functools import cache

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.settings import StageSettings


def of_equal_cost(recipe: Recipe, other: Recipe, *, row_tokens: tuple[int, int]) -> Recipe:
    """Return a recipe with other numbers of steps, so that each stage takes as many operations as the other's.

    row_tokens: mean tokens of general and of task rows. Warm-up and evaluations change in proportion. Both start from
    random weights.
    """
    if recipe.tasks or other.tasks or recipe.mixer or other.mixer:
        raise ValueError("tasks, mixer: operations are planned for one task and rho1 alone; give neither")

    def cost(one: Recipe, settings: StageSettings) -> float:
        return _step_flops(replace(settings, schedule=_one_step(settings.schedule)), one.vocabulary, row_tokens)

    def cut(stage: str) -> Schedule:
        own, known = (getattr(one, stage) for one in (recipe, other))
        mine, theirs = (
            one.settings_one(0) if stage == "stage_one" else one.settings_two(0, one.start) for one in (recipe, other)
        )
        return own.cut_to(known.steps * cost(other, theirs) / cost(recipe, mine) / own.steps)

    return replace(recipe, stage_one=cut("stage_one"), stage_two=cut("stage_two"))


def _one_step(schedule: Schedule) -> Schedule:
    """Return a schedule that equals others of equal rows, whatever their steps and rates."""
    return Schedule(
        steps=1, batch_rows=schedule.batch_rows, learning_rate=1.0, warmup_steps=0, weight_decay=0.0, evaluate_every=1
    )


@cache
def _step_flops(settings: StageSettings, vocabulary: int, row_tokens: tuple[int, int]) -> float:
    from tlm_ray.training.planned_flops import step_flops  # torch: only where operations are counted

    return step_flops(settings, vocabulary=vocabulary, row_tokens=row_tokens)
