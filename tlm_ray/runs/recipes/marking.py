"""Let the classifier of a recipe read the states at two marked spans."""

from collections.abc import Sequence
from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.objectives import MarkedLabels


def reading_marks(recipe: Recipe, signs: Sequence[str]) -> Recipe:
    """Return a recipe whose classifier also reads the states at the marks.

    signs: the four brackets of the two spans, see `Marks.signs`.
    """
    return replace(recipe, labels=MarkedLabels(smoothing=recipe.labels.smoothing, marks=tuple(signs)))
