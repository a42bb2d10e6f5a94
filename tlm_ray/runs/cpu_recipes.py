"""Our own recipes for CPUs: tiny for the embedded data, mini for real tasks and text; RECORDS.md has what they gave."""

from dataclasses import replace

from tlm_ray.runs.recipe import Recipe
from tlm_ray.training.counts import Counts
from tlm_ray.training.families import Geometry
from tlm_ray.training.objectives import Labels
from tlm_ray.training.schedules import Schedule
from tlm_ray.training.starts import Scratch

# ModernBERT learns to attend in a third of the steps of a BERT of this size. No dropout: a few thousand steps do not
# overfit, and drawing it takes a third of a step on a CPU.
SMALLEST = Geometry(family="modernbert", layers=2, width=128, heads=2, intermediate=384, positions=128, dropout=0.0)

TINY_RECIPE = Recipe(
    scale="tiny",
    start=Scratch(SMALLEST),
    vocabulary=8_000,
    k=50,
    rho1=7,
    rho2=20,
    precision="auto",
    counts=Counts(),
    stage_one=Schedule(
        steps=600, batch_rows=32, learning_rate=1e-3, warmup_steps=60, weight_decay=0.01, evaluate_every=200
    ),
    stage_two=Schedule(
        steps=200, batch_rows=32, learning_rate=1e-3, warmup_steps=20, weight_decay=0.0, evaluate_every=50
    ),
)
OWN_RECIPES = {
    "tiny": TINY_RECIPE,
    "mini": replace(
        TINY_RECIPE,
        scale="mini",
        labels=Labels(smoothing=0.1),
        stage_one=replace(  # type: ignore[type-var]
            TINY_RECIPE.stage_one, steps=1_500, warmup_steps=150, evaluate_every=500
        ),
        stage_two=replace(TINY_RECIPE.stage_two, averaged=0.5),
    ),
}

LENGTHS = (128, 256, 512)  # tokens of a task's row
PIECES = 1.3  # word pieces of a word
PLENTY = 1_000_000  # rows times row_words: text that needs little general text beside it (the paper's rho1: 1 to 3)


def fitted(recipe: Recipe, *, train_rows: int, row_words: int) -> Recipe:
    """Return one of our own recipes, fitted to a task.

    row_words: words that three in four training texts have at most. Rows are as long as these need, up to 512 tokens;
    of longer rows stage one takes fewer steps, so that a training stays below ten minutes of a core. Stage two passes
    ten times over the training rows, in 200 to 1,000 steps, of longer rows to 500: with 200 for SciERC's 3,219 rows a
    tiny BERT scored 28, with 1,000 it scored 34 (macro-F1, two seeds).
    """
    one, two = recipe.stage_one, recipe.stage_two
    assert one is not None and isinstance(recipe.start, Scratch)
    length = next((tokens for tokens in LENGTHS if PIECES * row_words + 2 <= tokens), LENGTHS[-1])
    is_long = length > LENGTHS[0]
    if is_long:
        steps = one.steps * LENGTHS[0] // (length // 2 + LENGTHS[0] // 2)
        one = replace(one, steps=steps, warmup_steps=steps // 10, evaluate_every=-(-steps // 3))
    steps_two = min(max(two.steps, 10 * train_rows // two.batch_rows), 500 if is_long else 1_000)
    return replace(
        recipe,
        start=Scratch(replace(recipe.start.geometry, positions=length)),
        task_tokens=length,
        rho1=1 if train_rows * row_words >= PLENTY else recipe.rho1,
        stage_one=one,
        stage_two=replace(two, steps=steps_two, warmup_steps=steps_two // 10, evaluate_every=steps_two // 4),
    )
