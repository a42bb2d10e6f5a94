"""Fine-tuning settings of a pretrained encoder at our own scales, whose stage two suits encoders trained here."""

from dataclasses import replace

from tlm_ray.runs.recipes.gururangan import TUNED_PASSES, linear_schedule, tuned_passes
from tlm_ray.runs.recipes.recipe import Recipe

RATE = 1e-4  # between BERT's rates of 2e-5 to 5e-5 (Devlin et al. 2019) and the higher ones of small encoders
BATCH_ROWS, WARMUP, DECAY = 32, 0.1, 0.01
LEAST_STEPS = 1_000  # on few rows an encoder of this kind needs more passes (Mosbach et al. 2021); SciERC takes 1,010


def with_fine_tuning(recipe: Recipe, *, train_rows: int, passes: int = 0, learning_rate: float = RATE) -> Recipe:
    """Return the recipe of a pretrained encoder (`recipes.baseline`) with common settings of fine-tuning.

    Stage two is plain cross-entropy in steps of 32 rows, at the marks if the recipe reads them. Its learning rate rises
    over a tenth of the steps, then falls linearly to 0. Dev is scored after each pass, at most ten times, and the best
    weights are kept. If stage one has a higher rate, it gets this one, because the 1e-3 of small encoders trained from
    scratch would undo the pretraining.

    passes: passes over the training rows; 0 for those of `fine_tuning_passes`. ValueError for negative ones or no rows.
    """
    if train_rows < 1:
        raise ValueError(f"train_rows {train_rows}: fine-tuning passes over the training rows; give their number")
    if passes < 0:
        raise ValueError(f"passes {passes}: must be 1 or more, or 0 for as many as suit the number of rows")
    one = recipe.stage_one
    if one is not None:
        one = replace(one, learning_rate=min(one.learning_rate, learning_rate))
    passes = passes or fine_tuning_passes(train_rows)
    steps, evaluations = passes * _steps_per_pass(train_rows), min(passes, TUNED_PASSES)
    two = linear_schedule(
        steps, rows=BATCH_ROWS, rate=learning_rate, decay=DECAY, warmup=WARMUP, evaluations=evaluations
    )
    return replace(recipe, stage_one=one, stage_two=two, labels=replace(recipe.labels, smoothing=0.0))


def fine_tuning_passes(train_rows: int) -> int:
    """Return the passes of fine-tuning: 10, or 3 for more than 5,000 rows, and more until they are 1,000 steps."""
    return max(tuned_passes(train_rows), -(-LEAST_STEPS // _steps_per_pass(train_rows)))


def _steps_per_pass(train_rows: int) -> int:
    return -(-train_rows // BATCH_ROWS)
