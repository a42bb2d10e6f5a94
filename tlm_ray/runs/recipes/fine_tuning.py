"""Fine-tuning settings of a pretrained encoder at our own scales, whose stage two suits encoders trained here."""

from dataclasses import replace

from tlm_ray.runs.recipes.gururangan import PASSES_OF_MANY, TUNED_PASSES, linear_schedule, tuned_passes
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.objectives import Labels

RATE = 1e-4  # between BERT's rates of 2e-5 to 5e-5 (Devlin et al. 2019) and the higher ones of small encoders
BATCH_ROWS, WARMUP, DECAY = 32, 0.1, 0.01


def with_fine_tuning(recipe: Recipe, *, train_rows: int, passes: int = 0, learning_rate: float = RATE) -> Recipe:
    """Return the recipe of a pretrained encoder (`recipes.baseline`) with common settings of fine-tuning.

    Stage two is plain cross-entropy in steps of 32 rows. Its learning rate rises over a tenth of the steps, then falls
    linearly to 0. The weights of the pass with the best dev score are kept. If stage one has a higher rate, it gets the
    same one, because the 1e-3 of small encoders trained from scratch would undo the pretraining.

    passes: passes over the training rows; 0 means 10, or 3 for more than 5,000 rows. ValueError for negative passes or
    no rows.
    """
    if train_rows < 1:
        raise ValueError(f"train_rows {train_rows}: fine-tuning passes over the training rows; give their number")
    if passes < 0:
        raise ValueError(
            f"passes {passes}: must be 1 or more, or 0 for {TUNED_PASSES}, {PASSES_OF_MANY} over many rows"
        )
    one = recipe.stage_one
    if one is not None:
        one = replace(one, learning_rate=min(one.learning_rate, learning_rate))
    passes = passes or tuned_passes(train_rows)
    steps = passes * -(-train_rows // BATCH_ROWS)  # whole passes, each scored on dev at its end
    two = linear_schedule(steps, rows=BATCH_ROWS, rate=learning_rate, decay=DECAY, warmup=WARMUP, evaluations=passes)
    return replace(recipe, stage_one=one, stage_two=two, labels=Labels())
