"""Settings of Gururangan et al. (2020) for adapting a pretrained encoder: steps, learning rates and decay."""

from dataclasses import replace

from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.loop.optimizers import AdamW
from tlm_ray.training.loop.schedules import Schedule

OPTIMIZER = AdamW(betas=(0.9, 0.98))
WARMUP = 0.06  # share of the steps
DAPT_STEPS, TAPT_PASSES = 12_500, 100
TUNED_PASSES, PASSES_OF_MANY, MANY = 10, 3, 5_000  # passes of fine-tuning, passes for more rows than MANY, rows


def with_gururangans_settings(recipe: Recipe, *, train_rows: int) -> Recipe:
    """Return an adapted encoder's recipe (`recipes.baseline`) with the settings of Gururangan et al. (2020).

    Domain-adaptive pretraining: 12,500 steps of 2,048 rows. Task-adaptive: 100 passes over the training text in steps
    of 256. Fine-tuning: 10 passes in steps of 16, or 3 for more than 5,000 rows; the best on dev is kept.
    """
    passes = tuned_passes(train_rows)
    tuned = _schedule(passes * train_rows, rows=16, rate=2e-5, decay=0.1, evaluations=passes)
    after = None if recipe.after is None else with_gururangans_settings(recipe.after, train_rows=train_rows)
    recipe = replace(recipe, after=after, stage_two=tuned, optimizer=OPTIMIZER)
    if recipe.stage_one is None:
        return recipe
    if recipe.rho1 is None:
        adapted = _schedule(DAPT_STEPS * 2_048, rows=2_048, rate=5e-4, decay=0.01, evaluations=5)
    else:
        adapted = _schedule(TAPT_PASSES * train_rows, rows=256, rate=1e-4, decay=0.01, evaluations=5)
    return replace(recipe, stage_one=adapted)


def tuned_passes(train_rows: int) -> int:
    """Return the passes of fine-tuning: 10 over the training rows, or 3 for more than 5,000 rows."""
    return PASSES_OF_MANY if train_rows > MANY else TUNED_PASSES


def _schedule(shown: int, *, rows: int, rate: float, decay: float, evaluations: int) -> Schedule:
    """Return a schedule of as many steps as pass over `shown` rows."""
    steps = -(-shown // rows)
    return linear_schedule(steps, rows=rows, rate=rate, decay=decay, warmup=WARMUP, evaluations=evaluations)


def linear_schedule(steps: int, *, rows: int, rate: float, decay: float, warmup: float, evaluations: int) -> Schedule:
    """Return a schedule whose rate rises over a share of the steps (warmup), then falls.

    evaluations: how often dev is scored.
    """
    return Schedule(
        steps=steps,
        batch_rows=rows,
        learning_rate=rate,
        warmup_steps=round(warmup * steps),
        weight_decay=decay,
        evaluate_every=-(-steps // evaluations),
    )
