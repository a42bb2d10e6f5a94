"""Adapt a pretrained encoder by a short stage one on the text that matters for the task, then fine-tune it."""

from dataclasses import replace

from tlm_ray.runs.recipes.paper import baseline
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.tokens.counts import Counts

SHARE = 1 / 3  # of the steps that stage one takes from random weights: 500 at mini
RATE = 2e-4


def adapted(
    recipe: Recipe, start: str, kind: str = "tlm", *, train_rows: int, steps: int | None = None, rate: float = RATE
) -> Recipe:
    """Return the recipe that adapts an encoder (hub name or local folder), then fine-tunes it on the task.

    kind: on which text, see `baseline`. "tlm" is the recipe's own retrieved text and the task's labels. steps: those of
    stage one; None for a third of the recipe's. An encoder without a head that predicts tokens gets one whose bias
    begins with the tokens' log frequencies. ValueError for a kind without a stage one.
    """
    made = baseline(recipe, start, kind, train_rows=train_rows)
    one = made.stage_one
    if one is None:
        raise ValueError(f"kind {kind!r}: adapts nothing; allowed are mlm, tapt, dapt and tlm")
    one = one.cut_to(SHARE) if steps is None else one.of_steps(steps)
    return replace(made, stage_one=replace(one, learning_rate=rate), counts=Counts(embeddings=False))
