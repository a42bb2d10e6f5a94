"""Recipes cut to a budget: within it and close to it, in proportion, and nothing but schedules changed."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray import Options, storage
from tlm_ray.report import training_flops
from tlm_ray.runs import options as module
from tlm_ray.runs.execution import Execution
from tlm_ray.runs.plan import CPU_FLOPS_PER_S, show, training_rate
from tlm_ray.runs.recipes import TABLE_B1, TINY_RECIPE, baseline, recipe_for
from tlm_ray.runs.scaling import ROWS_FLOOR, STEPS_FLOOR, recipe_parameters, recipe_tokens, scaled
from tlm_ray.runs.stages import Stage

RECIPES = [TINY_RECIPE, *(recipe_for(task, scale) for scale in TABLE_B1 for task in TABLE_B1[scale])]
RECIPES += [replace(TINY_RECIPE, k=0), baseline(recipe_for("imdb", "small"), "some/encoder")]


def smallest(recipe):
    """The smallest budget, by the words of the error."""
    with pytest.raises(ValueError, match="this recipe can be cut to") as error:
        scaled(recipe, 1)
    return int(str(error.value).split("cut to ")[1].split(" at least")[0].replace(",", ""))


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
    for name in ("stage_one", "stage_two")[bool(recipe.start) :]:
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
    assert recipe_tokens(scaled(recipe, least)[0]) == least
    with pytest.raises(ValueError, match=f"tokens {least - 1:,}: this recipe can be cut to {least:,} at least"):
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
    _, changes = scaled(TINY_RECIPE, recipe_tokens(TINY_RECIPE) // 4)
    assert changes == [
        "stage one: 500 steps instead of 2,000",
        "stage one: 50 steps of warm-up instead of 200",
        "stage one: 125 steps between evaluations instead of 500",
        "stage two: 100 steps instead of 200",
        "stage two: 10 steps of warm-up instead of 20",
        "stage two: 25 steps between evaluations instead of 50",
        "stage two: 16 rows a step instead of 32",
    ]


def test_the_command_line_cuts_to_tokens_or_minutes_and_tells_it_once(tmp_path, capsys):
    module._print_once.cache_clear()
    options = Options(root=str(tmp_path), tokens=2_000_000)
    cut = options.recipe("docstrings")
    assert cut == scaled(TINY_RECIPE, 2_000_000)[0] == options.recipe("docstrings")
    assert capsys.readouterr().out.count("stage one: ") == len(
        [c for c in scaled(TINY_RECIPE, 2_000_000)[1] if "one" in c]
    )
    timed = Options(root=str(tmp_path), minutes=0.5, train_workers=2).recipe("docstrings")
    size = {"steps": 1, "batch_rows": 1, "block_tokens": recipe_tokens(timed)}
    flops = training_flops(**size, parameters=recipe_parameters(timed))
    assert 0.9 * 30 <= flops / (2 * CPU_FLOPS_PER_S) <= 30
    with pytest.raises(ValueError, match="--tokens and --minutes: both are a budget; give one"):
        Options(tokens=1, minutes=1)
    with pytest.raises(ValueError, match="--minutes 1: the speed of --architecture is not known; give --tokens"):
        Options(root=str(tmp_path), minutes=1, architecture="bert-base-uncased").recipe("docstrings")


def test_a_training_whose_encoder_was_not_opened_has_no_estimate_and_spoils_none(tmp_path, capsys):
    root, options = str(tmp_path), {"version": 1, "parameters": {}, "make": lambda folder, inputs: {}, "lane": "train"}
    known = Stage(name="stage_two", cost={"flops": 600.0, "tokens": 2}, **options)
    opened = Stage(name="stage_two", inputs={"a": known}, cost={"tokens": 2}, **options)
    for stage in (known, opened):
        record = {"recipe": stage.recipe, "facts": {"seconds": 3.0}, "cost": dict(stage.cost)}
        storage.write_json(storage.join(stage.folder(root), "record.json"), record)
    assert training_rate("stage_two", root, gpu=False, workers=1) == 200
    show([Stage(name="stage_two", inputs={"b": known}, cost={"tokens": 2}, **options)], Execution(root=root))
    said = capsys.readouterr().out
    assert "not known" in said and "1 stages whose time is not known" in " ".join(said.split())
