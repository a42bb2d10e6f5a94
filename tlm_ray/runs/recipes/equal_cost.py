"""Give a recipe the steps that cost as many counted operations as another's, in both stages."""

from dataclasses import replace
from functools import cache

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.settings import StageSettings


def of_equal_cost(
    recipe: Recipe, other: Recipe, *, row_tokens: tuple[int, int], labels: tuple[str, ...] = ()
) -> Recipe:
    """Return a recipe with other numbers of steps, so that each stage takes as many operations as the other's.

    row_tokens: mean tokens of general and of task rows. labels: the classes' names, which a decoder writes. Warm-up and
    evaluations change in proportion. Without a stage one, stage two takes as many as both of the other's. Both start
    from random weights or a pretrained encoder.
    """
    if recipe.tasks or other.tasks or recipe.mixer or other.mixer:
        raise ValueError("tasks, mixer: operations are planned for one task and rho1 alone; give neither")
    if other.stage_one is None and recipe.stage_one is not None:
        raise ValueError("other: has no stage one to equal; give a recipe that has one")
    own, known = (_costs(one, row_tokens, labels) for one in (recipe, other))
    if "stage_one" not in own:
        known = {"stage_two": sum(known.values())}
    shares = {stage: known[stage] / own[stage] for stage in own}
    return replace(recipe, **{stage: getattr(recipe, stage).cut_to(share) for stage, share in shares.items()})


def _costs(recipe: Recipe, row_tokens: tuple[int, int], labels: tuple[str, ...]) -> dict[str, float]:
    """Return the planned operations of each stage that a recipe has."""
    stages: dict[str, StageSettings] = {} if recipe.stage_one is None else {"stage_one": recipe.settings_one(0)}
    stages["stage_two"] = recipe.settings_two(0, recipe.start)
    longest = (recipe.block_tokens, recipe.task_tokens)
    return {
        stage: own.schedule.steps
        * _step_flops(replace(own, schedule=_one_step(own.schedule)), recipe.vocabulary, row_tokens, longest, labels)
        for stage, own in stages.items()
    }


def _one_step(schedule: Schedule) -> Schedule:
    """Return a schedule that equals others of equal rows, whatever their steps and rates."""
    return Schedule(
        steps=1, batch_rows=schedule.batch_rows, learning_rate=1.0, warmup_steps=0, weight_decay=0.0, evaluate_every=1
    )


@cache
def _step_flops(
    settings: StageSettings,
    vocabulary: int,
    row_tokens: tuple[int, int],
    longest: tuple[int, int],
    labels: tuple[str, ...],
) -> float:
    from tlm_ray.training.planned_flops import step_flops  # torch: only where operations are counted

    return step_flops(settings, vocabulary=vocabulary, row_tokens=row_tokens, longest=longest, labels=labels)
