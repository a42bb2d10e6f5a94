"""A recipe cut down to a budget: fewer steps first, then fewer rows a step; what it learns from stays as it is."""

from dataclasses import replace

from tlm_ray.report.flops import encoder_parameters
from tlm_ray.runs.recipes import Recipe
from tlm_ray.training.schedules import Schedule

STEPS_FLOOR = 100  # with fewer steps, warm-up and decay are no schedule any more
ROWS_FLOOR = 8


def scaled(recipe: Recipe, tokens: int) -> tuple[Recipe, list[str]]:
    """Return a recipe that trains on at most `tokens` tokens over both stages, and what was changed, in plain words.

    Tokens are the paper's: steps x rows x length. Both stages shrink in proportion, by steps, warm-up and evaluation
    interval; by rows where a stage would else have under STEPS_FLOOR steps, or stage one no whole cycle of rho1 general
    batches and a task batch. A recipe within the budget is returned as it is. Raises ValueError for a budget that is
    too small, with the smallest possible.
    """
    total = recipe_tokens(recipe)
    if tokens >= total:
        return recipe, []
    cycle = (recipe.rho1 or 0) + 1 if recipe.uses_general else 1
    least_one = 0 if recipe.stage_one is None else _least_rows(recipe.stage_one, cycle) * recipe.block_tokens
    least_two = _least_rows(recipe.stage_two, 1) * recipe.task_tokens
    if tokens < least_one + least_two:
        raise ValueError(
            f"tokens {tokens:,}: this recipe can be cut to {least_one + least_two:,} at least; give that or more, "
            "or lower rho1 or the lengths of rows"
        )
    one = recipe.stage_one
    if one is not None:
        own = tokens * _rows(one) * recipe.block_tokens // total
        own = min(max(own, least_one), tokens - least_two)
        one = _cut(one, own // recipe.block_tokens, cycle)
    left = tokens - (0 if one is None else _rows(one) * recipe.block_tokens)
    two = _cut(recipe.stage_two, left // recipe.task_tokens, 1)
    cut = replace(recipe, stage_one=one, stage_two=two)
    return cut, _changes("stage_one", recipe, cut) + _changes("stage_two", recipe, cut)


def recipe_tokens(recipe: Recipe) -> int:
    """Return the tokens of both stages as the paper counts them."""
    one = 0 if recipe.stage_one is None else _rows(recipe.stage_one) * recipe.block_tokens
    return one + _rows(recipe.stage_two) * recipe.task_tokens


def recipe_parameters(recipe: Recipe) -> int:
    """Return the parameters of a recipe's encoder with its MLM head."""
    geometry = recipe.geometry
    return encoder_parameters(
        layers=geometry.layers,
        width=geometry.width,
        intermediate=geometry.intermediate,
        vocabulary=recipe.vocabulary,
        positions=geometry.positions,
        family=geometry.family,
    )


def _rows(schedule: Schedule) -> int:
    """Return the rows of all steps."""
    return schedule.steps * schedule.batch_rows


def _least_steps(schedule: Schedule, cycle: int) -> int:
    return min(schedule.steps, max(STEPS_FLOOR, cycle))


def _least_rows(schedule: Schedule, cycle: int) -> int:
    return _least_steps(schedule, cycle) * min(schedule.batch_rows, ROWS_FLOOR)


def _cut(schedule: Schedule, rows: int, cycle: int) -> Schedule:
    """Return a schedule with at most so many rows over all steps, and its marks in proportion."""
    batch_rows = min(schedule.batch_rows, rows // _least_steps(schedule, cycle))
    steps = min(schedule.steps, rows // batch_rows)
    return replace(
        schedule,
        steps=steps,
        batch_rows=batch_rows,
        warmup_steps=schedule.warmup_steps * steps // schedule.steps,
        evaluate_every=max(1, schedule.evaluate_every * steps // schedule.steps),
    )


def _changes(stage: str, recipe: Recipe, cut: Recipe) -> list[str]:
    """Say what is another number now in a stage."""
    before, after = (getattr(one, stage) for one in (recipe, cut))
    words = {
        "steps": "steps",
        "warmup_steps": "steps of warm-up",
        "evaluate_every": "steps between evaluations",
        "batch_rows": "rows a step",
    }
    return [
        f"{stage.replace('_', ' ')}: {getattr(after, field):,} {what} instead of {getattr(before, field):,}"
        for field, what in words.items()
        if before is not None and getattr(after, field) != getattr(before, field)
    ]
