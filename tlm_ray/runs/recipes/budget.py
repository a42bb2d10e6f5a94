"""Shorten a recipe to a token budget: fewer steps first, then fewer rows per step; or trade rows per step for steps."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.cost import mixed_tokens
from tlm_ray.training.loop.schedules import Schedule

STEPS_FLOOR = 100  # with fewer steps, warm-up and decay make no sense
ROWS_FLOOR = 8
Tokens = Callable[[Schedule], int]


def scaled(recipe: Recipe, tokens: int) -> tuple[Recipe, list[str]]:
    """Return a recipe that trains on at most `tokens` tokens over both stages, and its changes in words.

    Tokens are counted as in the paper: steps x rows x length. Both stages shrink in proportion: steps, warm-up and
    evaluation interval. Rows shrink if a stage would have under STEPS_FLOOR steps, or stage one no whole cycle of rho1
    general batches and a task batch. A recipe within the budget is returned unchanged. ValueError for a budget that is
    too small, with the minimum.
    """
    total = recipe_tokens(recipe)
    if tokens >= total:
        return recipe, []
    of_one, of_two = _stage_one_tokens(recipe), _stage_two_tokens(recipe)
    one, two = recipe.stage_one, recipe.stage_two
    least_one, least_two = _least_tokens(recipe)
    if tokens < least_one + least_two:
        raise ValueError(
            f"tokens {tokens:,}: this recipe needs {least_one + least_two:,} or more; raise --tokens, "
            "or lower rho1 or the row lengths"
        )
    left = tokens
    if one is not None:
        share = tokens * of_one(one) // total
        one = _cut(one, of_one, min(max(share, least_one), tokens - least_two), _cycle(recipe))
        left -= of_one(one)
    cut = replace(recipe, stage_one=one, stage_two=two if recipe.one_stage else _cut(two, of_two, left, 1))
    return cut, _changes("stage_one", recipe, cut) + _changes("stage_two", recipe, cut)


def of_rows(recipe: Recipe, batch_rows: int) -> Recipe:
    """Return a recipe of other rows per step in both stages, which takes about as many rows in all."""
    one = recipe.stage_one
    return replace(recipe, stage_one=one and one.of_rows(batch_rows), stage_two=recipe.stage_two.of_rows(batch_rows))


def part_of(recipe: Recipe, part: float) -> tuple[Recipe, list[str]]:
    """Return the recipe cut to a share of its tokens, and its changes in words; see `scaled`.

    ValueError for a share that is too small, with the least that the recipe needs.
    """
    total = recipe_tokens(recipe)
    if (tokens := int(part * total)) < (least := least_tokens(recipe)):
        needed = math.ceil(1000 * least / total) / 1000
        fix = "give a larger part" if needed < 1 else "leave it out"
        raise ValueError(f"part {part:g}: this recipe needs {needed:g} or more of its tokens; {fix}")
    return scaled(recipe, tokens)


def parts_of(recipe: Recipe, parts: Sequence[float]) -> dict[float, Recipe]:
    """Return the recipe cut to shares of its tokens, smallest first, each share once; see `part_of`."""
    return {part: part_of(recipe, part)[0] for part in sorted(set(parts))}


def recipe_tokens(recipe: Recipe) -> int:
    """Return the tokens of both stages, as the paper counts them."""
    return sum(stage_tokens(recipe).values())


def stage_tokens(recipe: Recipe) -> dict[str, int]:
    """Return the tokens of each training stage, 0 for one that the recipe lacks."""
    return {
        "stage_one": 0 if recipe.stage_one is None else _stage_one_tokens(recipe)(recipe.stage_one),
        "stage_two": 0 if recipe.one_stage else _stage_two_tokens(recipe)(recipe.stage_two),
    }


def least_tokens(recipe: Recipe) -> int:
    """Return the tokens of the smallest recipe that `scaled` can return."""
    return sum(_least_tokens(recipe))


def recipe_parameters(recipe: Recipe) -> int | None:
    """Return the number of parameters of the encoder with its MLM head; None if unknown before it is opened."""
    return recipe.start.parameters(vocabulary=recipe.vocabulary)


def _stage_one_tokens(recipe: Recipe) -> Tokens:
    """Return a function that counts the tokens of a stage-one schedule; general and task rows may differ in length."""
    rho1 = recipe.rho1 if recipe.uses_general else 0
    lengths = {"block_tokens": recipe.block_tokens, "task_tokens": recipe.task_tokens}
    return lambda schedule: mixed_tokens(schedule, rho1, mixer=recipe.mixer, **lengths)


def _stage_two_tokens(recipe: Recipe) -> Tokens:
    return lambda schedule: schedule.steps * schedule.batch_rows * recipe.task_tokens


def _cycle(recipe: Recipe) -> int:
    """Return the number of steps per task batch."""
    return (recipe.rho1 or 0) + 1 if recipe.uses_general else 1


def _least_tokens(recipe: Recipe) -> tuple[int, int]:
    """Return the tokens of each stage of the smallest recipe."""
    one = 0 if recipe.stage_one is None else _stage_one_tokens(recipe)(_least(recipe.stage_one, _cycle(recipe)))
    return one, 0 if recipe.one_stage else _stage_two_tokens(recipe)(_least(recipe.stage_two, 1))


def _least(schedule: Schedule, cycle: int) -> Schedule:
    """Return the shortest allowed schedule."""
    steps = min(schedule.steps, max(STEPS_FLOOR, cycle))
    return _with_steps(schedule, steps, rows=min(schedule.batch_rows, ROWS_FLOOR))


def _cut(schedule: Schedule, count: Tokens, tokens: int, cycle: int) -> Schedule:
    """Return a schedule of at most so many tokens, with proportional warm-up and intervals."""
    least = _least(schedule, cycle).steps
    rows = min(schedule.batch_rows, tokens // count(_with_steps(schedule, least, rows=1)))
    lengths = range(1, schedule.steps + 1)
    steps = bisect_right(lengths, tokens, key=lambda steps: count(_with_steps(schedule, steps, rows=rows)))
    return _with_steps(schedule, steps, rows=rows)


def _with_steps(schedule: Schedule, steps: int, *, rows: int) -> Schedule:
    return replace(
        schedule,
        steps=steps,
        batch_rows=rows,
        warmup_steps=schedule.warmup_steps * steps // schedule.steps,
        evaluate_every=max(1, schedule.evaluate_every * steps // schedule.steps),
    )


def _changes(stage: str, recipe: Recipe, cut: Recipe) -> list[str]:
    """List the changed numbers of a stage."""
    before, after = (getattr(one, stage) for one in (recipe, cut))
    words = {
        "steps": "steps",
        "warmup_steps": "steps of warm-up",
        "evaluate_every": "steps between evaluations",
        "batch_rows": "rows per step",
    }
    return [
        f"{stage.replace('_', ' ')}: {getattr(after, field):,} {what} instead of {getattr(before, field):,}"
        for field, what in words.items()
        if before is not None and getattr(after, field) != getattr(before, field)
    ]
