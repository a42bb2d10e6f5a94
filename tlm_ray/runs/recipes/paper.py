"""Return recipes: the paper's per scale and task (table B.1), ours for CPUs, and those of pretrained encoders."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.labelled.hub import known_name
from tlm_ray.retrieval.methods import method_named
from tlm_ray.runs.recipes.cpu import OWN_RECIPES, fitted
from tlm_ray.runs.recipes.fine_tuning import with_fine_tuning
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Pretrained, Scratch
from tlm_ray.training.loop.schedules import Schedule

BASE = Geometry(layers=12, width=768, heads=12, intermediate=3072)
LARGE = Geometry(layers=24, width=1024, heads=16, intermediate=4096)
# From the released scripts (SciERC, small) and table A.1. The learning rates of stage one at medium and large are
# unpublished, so all scales have the one of small.
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

# Table B.1: k, rho1, rho2, steps of stage one in thousands, rows per batch.
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

    Our own are fitted to the task (`tlm_ray.runs.recipes.cpu.fitted`). tiny is for the embedded data and takes about a
    minute on one core. mini and midi are for real tasks and text. They take four and nine minutes on one core, more for
    long texts.

    For other tasks, k follows the paper's rule by training rows (section 4.1): 5000 below 5,000 rows, 50 above 100,000,
    else 500, doubled at large. Their rho1 and rho2 are those of a task of the paper in the same range.

    row_words: third quartile of words per training text.
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


def size_of(texts: Sequence[str]) -> dict[str, int]:
    """Return what `recipe_for` asks of a task's training texts: their number, and the third quartile of their words."""
    words = sorted(len(text.split()) for text in texts)
    return {"train_rows": len(words), "row_words": words[3 * len(words) // 4]}


BASELINES: dict[str, dict[str, Any]] = {
    "plain": {"stage_one": None, "k": 0, "rho1": 0},
    "mlm": {"k": 0, "rho1": 0},
    "tapt": {"k": 0, "rho1": 0, "weighting": "mlm"},
    "dapt": {"method": "random", "rho1": None},
    "tlm": {},
}


def baseline(recipe: Recipe, start: str | Recipe, kind: str = "plain", *, train_rows: int = 0) -> Recipe:
    """Return the recipe of a pretrained encoder on the same task: a baseline row.

    start: hub name or local folder of an encoder with its tokenizer, or a recipe whose stage one is the pretraining.
    kind: training before stage two. "plain": none. "mlm": stage one on the task alone (PLM + MLM, table 8). "tapt": MLM
    on the task's training text, without labels. "dapt": MLM on random passages of a corpus of the task's domain
    (Gururangan et al. 2020). "dapt+tapt": both, in this order. "tlm": the recipe's own stage one.

    At our own scales an external encoder has its own schedule of fine-tuning (`with_fine_tuning`). It needs train_rows,
    the number of training rows. At the paper's scales it has the paper's stage two. An encoder pretrained by a recipe
    has the stage two of `recipe`, because it is as small as TLM's and differs only in its text.
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
    start = storage.absolute_if_there(start)  # because workers have another working folder
    return replace(recipe, start=Pretrained(start), tokenizer=start, after=None, counts=None, **BASELINES[last])


def pretraining(recipe: Recipe) -> Recipe:
    """Return a recipe whose stage one pretrains an encoder on random general text alone.

    The text has as many passages as the recipe retrieves. The vocabulary comes from this text and the task's. Such an
    encoder serves as a baseline at scales for which no published one exists.
    """
    return replace(recipe, method=method_named("random"), rho1=None)
