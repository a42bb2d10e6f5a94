"""Recipes cut to a budget: within it and close to it, in proportion, and nothing but schedules changed."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.runs.recipes.budget import ROWS_FLOOR, STEPS_FLOOR, least_tokens, recipe_tokens, scaled
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.recipes.paper import TABLE_B1, baseline, recipe_for

RECIPES = [TINY_RECIPE, *(recipe_for(task, scale) for scale in TABLE_B1 for task in TABLE_B1[scale])]
RECIPES += [replace(TINY_RECIPE, k=0), baseline(recipe_for("imdb", "small"), "some/encoder")]


def smallest(recipe):
    """The smallest budget, by the words of the error."""
    with pytest.raises(ValueError, match="this recipe needs") as error:
        scaled(recipe, 1)
    return int(str(error.value).split("needs ")[1].split(" or more")[0].replace(",", ""))


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(recipe=st.sampled_from(RECIPES), share=st.floats(0, 1))
def test_a_cut_recipe_is_within_the_budget_and_uses_nine_tenths_of_it(recipe, share):
    least, total = smallest(recipe), recipe_tokens(recipe)
    budget = least + int(share * (total - least))
    cut, changes = scaled(recipe, budget)
    assert 0.9 * budget <= recipe_tokens(cut) <= budget
    assert changes or cut == recipe
    assert {f.name for f in fields(cut) if getattr(cut, f.name) != getattr(recipe, f.name)} <= {
        "stage_one",
        "stage_two",
    }
    for name in ("stage_one", "stage_two")[recipe.stage_one is None :]:
        before, after = getattr(recipe, name), getattr(cut, name)
        assert after.steps >= STEPS_FLOOR and ROWS_FLOOR <= after.batch_rows <= before.batch_rows
        assert (after.learning_rate, after.weight_decay) == (before.learning_rate, before.weight_decay)
        for mark in ("warmup_steps", "evaluate_every"):
            assert getattr(after, mark) == pytest.approx(getattr(before, mark) * after.steps / before.steps, abs=1)
    if recipe.uses_general:
        assert cut.stage_one.steps > recipe.rho1, "one task batch at least"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_smallest_budget_is_possible_and_one_less_is_not(recipe):
    least = smallest(recipe)
    assert recipe_tokens(scaled(recipe, least)[0]) == least == least_tokens(recipe)
    with pytest.raises(ValueError, match=f"tokens {least - 1:,}: this recipe needs {least:,} or more"):
        scaled(recipe, least - 1)


def test_a_budget_that_suffices_changes_nothing():
    for budget in (recipe_tokens(TINY_RECIPE), 10**12):
        assert scaled(TINY_RECIPE, budget) == (TINY_RECIPE, [])


def test_rows_are_cut_only_where_steps_alone_would_go_too_low():
    recipe = recipe_for("ag", "small")
    half, tenth = scaled(recipe, recipe_tokens(recipe) // 2)[0], scaled(recipe, recipe_tokens(recipe) // 5_000)[0]
    assert (half.stage_one.steps, half.stage_one.batch_rows) == (50_000, 256)
    assert tenth.stage_one.batch_rows < 256 and tenth.stage_one.steps >= STEPS_FLOOR


def test_changes_are_told_in_words():
    recipe = recipe_for("mine", "mini", train_rows=640)
    _, changes = scaled(recipe, recipe_tokens(recipe) // 8)
    assert changes == [
        "stage one: 187 steps instead of 1,500",
        "stage one: 18 steps of warm-up instead of 150",
        "stage one: 62 steps between evaluations instead of 500",
        "stage two: 102 steps instead of 200",
        "stage two: 10 steps of warm-up instead of 20",
        "stage two: 25 steps between evaluations instead of 50",
        "stage two: 8 rows per step instead of 32",
    ]
