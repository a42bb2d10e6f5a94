"""Let the classifier of a recipe read the states at two marked spans."""

from collections.abc import Sequence
from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.objectives import Labels, MarkedLabels


def reading_marks(recipe: Recipe, signs: Sequence[str]) -> Recipe:
    """Return a recipe whose classifier also reads the states at the marks.

    signs: the four brackets of the two spans, see `Marks.signs`. ValueError if its labels are of another kind.
    """
    if type(recipe.labels) not in (Labels, MarkedLabels):
        raise ValueError(
            f"marks: the recipe's labels are {type(recipe.labels).__name__}, which read none; leave it out"
        )
    return replace(recipe, labels=MarkedLabels(smoothing=recipe.labels.smoothing, marks=tuple(signs)))
