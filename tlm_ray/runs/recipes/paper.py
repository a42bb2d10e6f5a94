"""The recipes: the paper's own per scale and task (table B.1), ours for CPUs, and those of pretrained encoders."""

from dataclasses import replace
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.hub import known_name
from tlm_ray.retrieval.methods import method_named
from tlm_ray.runs.recipes.cpu import OWN_RECIPES, fitted
from tlm_ray.runs.recipes.fine_tuning import with_fine_tuning
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.families import Geometry
from tlm_ray.training.schedules import Schedule
from tlm_ray.training.starts import Pretrained, Scratch

BASE = Geometry(layers=12, width=768, heads=12, intermediate=3072)
LARGE = Geometry(layers=24, width=1024, heads=16, intermediate=4096)
# Released scripts (SciERC, small) and table A.1. Stage one's rates at medium and large are not published; these are
# small's.
PAPER_STAGE_ONE = Schedule(
    steps=150_000,
    batch_rows=256,
    learning_rate=1e-4,
    warmup_steps=10_000,
    weight_decay=0.01,
    evaluate_every=5_000,
    log_every=100,
)
PAPER_STAGE_TWO = Schedule(
    steps=30_000,
    batch_rows=32,
    learning_rate=2e-5,
    warmup_steps=3_000,
    weight_decay=0.0,
    evaluate_every=1_000,
    log_every=100,
)

# Table B.1: k, rho1, rho2, steps of stage one in thousands, batch rows.
TABLE_B1 = {
    "small": {
        "ag": (50, 1, 100, 100, 256),
        "hyp": (5000, 99, 20, 50, 256),
        "amazon": (50, 1, 100, 150, 256),
        "imdb": (500, 19, 100, 150, 256),
        "citation_intent": (5000, 999, 100, 150, 256),
        "sciie": (5000, 999, 20, 150, 256),
        "chemprot": (5000, 999, 20, 150, 256),
        "rct-20k": (50, 3, 20, 100, 256),
    },
    "medium": {
        "ag": (50, 3, 100, 300, 256),
        "hyp": (5000, 99, 100, 100, 256),
        "amazon": (50, 1, 1000, 300, 256),
        "imdb": (500, 99, 100, 300, 256),
        "citation_intent": (5000, 999, 20, 300, 256),
        "sciie": (5000, 999, 20, 300, 256),
        "chemprot": (5000, 999, 100, 300, 256),
        "rct-20k": (50, 3, 100, 300, 256),
    },
    "large": {
        "ag": (100, 3, 100, 500, 256),
        "hyp": (10000, 499, 20, 300, 512),
        "amazon": (100, 7, 100, 500, 512),
        "imdb": (1000, 99, 1000, 500, 512),
        "citation_intent": (10000, 1999, 20, 500, 512),
        "sciie": (10000, 1999, 20, 300, 512),
        "chemprot": (10000, 1999, 20, 500, 256),
        "rct-20k": (100, 7, 100, 500, 256),
    },
}  # fmt: skip


def recipe_for(task: str, scale: str, *, train_rows: int = 0, row_words: int = 0) -> Recipe:
    """Return the paper's recipe of a task at a scale, or one of our own for CPUs.

    tiny is for the embedded data, about a minute of a core; mini and midi are for real tasks and text, four and
    nine minutes of a core, more of long texts, fitted to the task (`tlm_ray.runs.recipes.cpu.fitted`).

    A task that is not the paper's gets the settings that the paper's rule gives its size: K = 5000 below 5,000
    training rows, 50 above 100,000, else 500, doubled at large (section 4.1), with the rho1 and rho2 of the paper's
    task of that kind. row_words: words that three in four training texts have at most.
    """
    if scale in OWN_RECIPES:
        return fitted(OWN_RECIPES[scale], train_rows=train_rows, row_words=row_words)
    if scale not in TABLE_B1:
        raise ValueError(f"scale {scale!r}: allowed are {', '.join([*OWN_RECIPES, *TABLE_B1])}")
    name = known_name(task)
    alike = "sciie" if train_rows < 5_000 else "rct-20k" if train_rows > 100_000 else "imdb"
    k, rho1, rho2, thousands, rows = TABLE_B1[scale].get(name, TABLE_B1[scale][alike])
    long = name == "imdb"
    return Recipe(
        scale=scale,
        start=Scratch(LARGE if scale == "large" else BASE),
        vocabulary=30_522,
        tokenizer="google-bert/bert-large-uncased" if scale == "large" else "google-bert/bert-base-uncased",
        k=k,
        rho1=rho1,
        rho2=rho2,
        precision="bf16",
        stage_one=replace(PAPER_STAGE_ONE, steps=thousands * 1_000, batch_rows=rows),
        stage_two=PAPER_STAGE_TWO,
        task_tokens=512 if long else 128,
        block_tokens=512 if long and scale != "small" else 128,
        passage_tokens=512 if long and scale != "small" else 128,
    )


BASELINES: dict[str, dict[str, Any]] = {
    "plain": {"stage_one": None, "k": 0, "rho1": 0},
    "mlm": {"k": 0, "rho1": 0},
    "tapt": {"k": 0, "rho1": 0, "weighting": "mlm"},
    "dapt": {"method": "random", "rho1": None},
    "tlm": {},
}


def baseline(recipe: Recipe, start: str | Recipe, kind: str = "plain", *, train_rows: int = 0) -> Recipe:
    """Return the recipe of a pretrained encoder on the same task: a baseline row.

    start: a hub name or a local folder that holds an encoder and its tokenizer, or a recipe whose stage one is the
    pretraining. kind: what comes before stage two: "plain": nothing. "mlm": stage one on the task alone (PLM + MLM,
    table 8). "tapt": MLM on the task's training text, labels unseen; "dapt": MLM on passages drawn at random, from a
    corpus that is of the task's domain (Gururangan et al. 2020); "dapt+tapt": the one, then the other. "tlm": the
    recipe's own stage one.

    At our own scales an encoder of others is fine-tuned with a schedule of its own (`with_fine_tuning`), for which
    train_rows, the task's training rows, must be given. At the paper's scales it has the paper's stage two, as there.
    An encoder that a recipe pretrains keeps that of the recipe: it is as small as TLM's and differs in its text alone.
    """
    *earlier, last = kind.split("+") if kind == "dapt+tapt" else [kind]
    if last not in BASELINES:
        raise ValueError(f"baseline {kind!r}: allowed are {', '.join([*BASELINES, 'dapt+tapt'])}")
    if earlier:
        start = baseline(recipe, start, *earlier, train_rows=train_rows)
    is_of_others = isinstance(start, str) or isinstance(start.start, Pretrained)
    if is_of_others and recipe.scale in OWN_RECIPES:
        recipe = with_fine_tuning(recipe, train_rows=train_rows)
    if isinstance(start, Recipe):
        return replace(
            recipe, start=start.start, tokenizer=start.tokenizer, after=start, counts=None, **BASELINES[last]
        )
    start = storage.absolute_if_there(start)  # workers have another working folder
    return replace(recipe, start=Pretrained(start), tokenizer=start, counts=None, **BASELINES[last])


def pretraining(recipe: Recipe) -> Recipe:
    """Return a recipe whose stage one is a pretraining: general text that was not searched for, and nothing else.

    It draws as many passages as the recipe retrieves, so that at this scale an encoder is pretrained where none can be
    had; its vocabulary is that of its text and the task's.
    """
    return replace(recipe, method=method_named("random"), rho1=None)
