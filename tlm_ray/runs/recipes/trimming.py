"""Keep some layers and the frequent pieces of a recipe's pretrained encoder."""

from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.starts import Pretrained, Trimmed


def with_layers(recipe: Recipe, layers: int) -> Recipe:
    """Return the recipe with so many layers of its encoder, see `Trimmed`.

    ValueError for a recipe that starts from no pretrained encoder.
    """
    if not isinstance(recipe.start, Pretrained):
        raise ValueError(f"layers {layers}: are those of a pretrained encoder; give start=Pretrained(...)")
    after = None if recipe.after is None else with_layers(recipe.after, layers)
    return replace(recipe, start=Trimmed(recipe.start.source, layers), after=after)
