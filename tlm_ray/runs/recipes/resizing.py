"""Change the size of a recipe's pretrained encoder: fewer layers and pieces, or further words."""

from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.starts import Extended, Pretrained, Trimmed


def resized(recipe: Recipe, *, layers: int | None = None, new_words: int | None = None) -> Recipe:
    """Return the recipe, and those before it, with another size of its encoder; None changes nothing.

    layers: how many to keep, see `Trimmed`. new_words: how many to add, see `Extended`. ValueError for both, or for a
    recipe that starts from no pretrained encoder.
    """
    given = {name: size for name, size in (("layers", layers), ("new words", new_words)) if size is not None}
    if not given:
        return recipe
    told = ", ".join(f"{name} {size}" for name, size in given.items())
    if not isinstance(recipe.start, Pretrained):
        raise ValueError(f"{told}: are those of a pretrained encoder; give start=Pretrained(...)")
    if len(given) > 1:
        raise ValueError(f"{told}: its pieces are either trimmed or extended; give one of them")
    source = recipe.start.source
    start = Trimmed(source, layers) if layers is not None else Extended(source, given["new words"])
    after = None if recipe.after is None else resized(recipe.after, layers=layers, new_words=new_words)
    return replace(recipe, start=start, after=after)
