"""Recipes for CPUs: tiny for the embedded data, mini and midi for real tasks and text; see RECORDS.md."""

from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.objectives import Labels
from tlm_ray.training.tokens.counts import Counts

# ModernBERT learns to attend in a third of the steps of a BERT of this size. No dropout: a few thousand steps do not
# overfit, and dropout takes a third of a step on a CPU.
SMALLEST = Geometry(family="modernbert", layers=2, width=128, heads=2, intermediate=384, positions=128, dropout=0.0)

# With twice the steps in both stages it scored 75.3 ± 0.8 on the embedded task, with these 75.2 ± 1.0 (3 seeds).
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
        steps=300, batch_rows=32, learning_rate=1e-3, warmup_steps=30, weight_decay=0.01, evaluate_every=100
    ),
    stage_two=Schedule(
        steps=100, batch_rows=32, learning_rate=1e-3, warmup_steps=10, weight_decay=0.0, evaluate_every=25
    ),
)
MINI_RECIPE = replace(
    TINY_RECIPE,
    scale="mini",
    labels=Labels(smoothing=0.1),
    stage_one=replace(  # type: ignore[type-var]
        TINY_RECIPE.stage_one, steps=1_500, warmup_steps=150, evaluate_every=500
    ),
    stage_two=replace(TINY_RECIPE.stage_two, steps=200, warmup_steps=20, evaluate_every=50, averaged=0.5),
)
# Twice the width, and the same number of tokens in twice the steps.
MIDI_RECIPE = replace(
    MINI_RECIPE,
    scale="midi",
    start=Scratch(replace(SMALLEST, width=256, heads=4, intermediate=768)),
    stage_one=replace(  # type: ignore[type-var]
        MINI_RECIPE.stage_one, steps=3_000, batch_rows=16, warmup_steps=300, evaluate_every=1_000
    ),
    stage_two=replace(MINI_RECIPE.stage_two, steps=400, batch_rows=16, warmup_steps=40, evaluate_every=100),
)
OWN_RECIPES = {recipe.scale: recipe for recipe in (TINY_RECIPE, MINI_RECIPE, MIDI_RECIPE)}

# From this share of its tokens on, a recipe scores better than the next smaller one in equal time (see RECORDS.md).
WORTH = {"midi": 0.5, "mini": 0.0}
LENGTHS = (128, 256, 512)  # tokens per task row
PIECES = 1.3  # word pieces per word
PASSES = 10  # passes of stage two over the training rows, within a limit on rows
PLENTY = 1_000_000  # from this product of rows and row_words, a task needs little general text (paper: rho1 1 to 3)


def fitted(recipe: Recipe, *, train_rows: int, row_words: int) -> Recipe:
    """Return one of the CPU recipes, fitted to a task.

    row_words: third quartile of words per training text. It sets the row length, up to 512 tokens. With longer rows
    stage one takes fewer steps, to limit the time. Stage two makes ten passes over the training rows, but over at most
    32,000 rows in all, or 16,000 long ones. On SciERC (3,219 rows) a tiny BERT scored 28 with 6,400 rows and 34 with
    32,000 (macro-F1, two seeds).
    """
    one, two = recipe.stage_one, recipe.stage_two
    assert one is not None and isinstance(recipe.start, Scratch)
    length = next((tokens for tokens in LENGTHS if PIECES * row_words + 2 <= tokens), LENGTHS[-1])
    is_long = length > LENGTHS[0]
    if is_long:
        steps = one.steps * LENGTHS[0] // (length // 2 + LENGTHS[0] // 2)
        one = replace(one, steps=steps, warmup_steps=steps // 10, evaluate_every=-(-steps // 3))
    seen = min(PASSES * train_rows, 16_000 if is_long else 32_000)
    steps_two = max(two.steps, seen // two.batch_rows)
    return replace(
        recipe,
        start=Scratch(replace(recipe.start.geometry, positions=length)),
        task_tokens=length,
        rho1=1 if train_rows * row_words >= PLENTY else recipe.rho1,
        stage_one=one,
        stage_two=replace(two, steps=steps_two, warmup_steps=steps_two // 10, evaluate_every=steps_two // 4),
    )
