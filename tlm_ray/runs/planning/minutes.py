"""Fit a recipe to a budget in minutes, at the speed of earlier trainings."""

import math
from collections.abc import Sequence

from tlm_ray import storage
from tlm_ray.runs.planning.estimates import training_seconds
from tlm_ray.runs.recipes.budget import least_tokens, recipe_parameters, recipe_tokens, scaled
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import DIGITS, fingerprint_of, plain

BUDGETS = "minutes"  # a folder under the root, so that a budget in minutes gives the same recipe again


def within(minutes: float, recipe: Recipe, execution: Execution) -> tuple[Recipe, Sequence[str]]:
    """Return a recipe that trains for at most some minutes, and its changes in words; see `scaled`.

    ValueError for too few minutes, with the least that the recipe needs.
    """
    tokens = tokens_in(minutes, recipe, execution)
    if tokens < least_tokens(recipe):
        least = math.ceil(100 * minutes * least_tokens(recipe) / tokens) / 100
        raise ValueError(f"minutes {minutes:g}: this recipe needs {least:g} or more; give more")
    return scaled(recipe, int(tokens))


def share_within(minutes: float, recipe: Recipe, execution: Execution) -> float:
    """Return the share of a recipe's tokens that it trains on in some minutes; above 1 if it takes less time."""
    return tokens_in(minutes, recipe, execution) / recipe_tokens(recipe)


def is_enough(minutes: float | None, recipe: Recipe, execution: Execution) -> bool:
    """Return whether a recipe needs no cut to take some minutes; None is no limit."""
    return minutes is None or share_within(minutes, recipe, execution) >= 1


def tokens_in(minutes: float, recipe: Recipe, execution: Execution) -> float:
    """Return the tokens, by the paper's rule, that a recipe trains on in `minutes`.

    The answer is stored under the root, because every training that is recorded later changes the estimate.
    """
    compute = execution.compute
    start = plain(recipe.start.identity, "start")  # an encoder's files, not its folder alone
    asked = {"minutes": minutes, "recipe": plain(recipe, "recipe"), "compute": compute.parts}
    asked |= {"start": start} if recipe_parameters(recipe) is None else {}
    key = fingerprint_of(storage.all_without_credentials(asked))
    uri = storage.join(execution.root, BUDGETS, f"{key[:DIGITS]}.json")  # its own, as other jobs write theirs
    if not storage.exists(uri):
        seconds = training_seconds(recipe, Records(execution.root), compute)
        storage.write_record(uri, {"tokens": 60 * minutes / seconds * recipe_tokens(recipe)})
    return storage.read_record(uri, fix="delete this file")["tokens"]
