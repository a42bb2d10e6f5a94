"""Recipes: every number that decides what a training learns, and the paper's own per scale and task (table B.1).

A recipe is what identifies a result. What only says how to run it (workers, shards, GPUs, where results lie) is in
`tlm_ray.runs.execution`.
"""

from dataclasses import dataclass, replace
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.hub import known_name
from tlm_ray.retrieval.methods import Bm25, Method, method_named
from tlm_ray.runs.precision import fastest_precision
from tlm_ray.training.counts import Counts
from tlm_ray.training.families import Geometry
from tlm_ray.training.objectives import WEIGHTINGS, Labels, Mlm, Objective
from tlm_ray.training.optimizers import AdamW, Optimizer
from tlm_ray.training.schedules import Schedule
from tlm_ray.training.settings import StageOne, StageTwo
from tlm_ray.training.starts import Pretrained, Scratch, Start

PRECISIONS = ("auto", "fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train TLM on a task."""

    scale: str
    """name of the recipe that this one was made from"""
    start: Start
    """what training begins with: Scratch(geometry), Architecture(source) or Pretrained(source)"""
    vocabulary: int
    """entries of a trained tokenizer"""
    stage_one: Schedule | None
    """None leaves stage one out"""
    stage_two: Schedule
    k: int
    """passages kept per query; 0: task data only"""
    rho1: int | None
    """general batches per task batch; None for no task batches at all (external data only, table 5)"""
    rho2: float
    """weight of the text objectives in a task batch"""
    method: Method = Bm25()  # noqa: RUF009 - frozen
    """how passages are chosen: one of tlm_ray.retrieval.methods, by name or with its settings, or your own"""
    depth: int = 0
    """passages retrieved per query, k at least: one retrieval serves every smaller k; 0 for k"""
    weighting: str = "released"
    """of a task batch's losses: see tlm_ray.training.objectives.losses"""
    objectives: tuple[Objective, ...] = (Mlm(),)
    """what stage one learns of text, beside the labels; the first one's model is what stage two begins with"""
    labels: Labels = Labels()  # noqa: RUF009 - frozen
    """how stage two learns the task"""
    optimizer: Optimizer = AdamW()  # noqa: RUF009 - frozen
    counts: Counts | None = None
    """how token embeddings and output bias begin with counts of the text; None for random ones"""
    tokenizer: str = "trained"
    """"trained", a WordPiece of `vocabulary` entries from the selected and task text, or a hub name or local folder"""
    passage_tokens: int = 128
    """word pieces of a passage"""
    block_tokens: int = 128
    """tokens of a general block"""
    task_tokens: int = 128
    """tokens of a task example"""
    precision: str = "fp32"
    """of matrix products: fp32, bf16, or auto, bf16 where the hardware multiplies it fast"""

    def __post_init__(self) -> None:
        if not self.depth:
            object.__setattr__(self, "depth", max(1, self.k))
        object.__setattr__(self, "method", method_named(self.method))
        for name, allowed in (("weighting", WEIGHTINGS), ("precision", PRECISIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} {getattr(self, name)!r}: allowed are {', '.join(allowed)}")
        if not 0 <= self.k <= self.depth:
            raise ValueError(
                f"k {self.k}: must lie between 0 and depth ({self.depth}), the passages retrieved a query; "
                "lower k or raise --depth"
            )
        if self.rho1 is not None and (isinstance(self.rho1, bool) or not isinstance(self.rho1, int) or self.rho1 < 0):
            raise ValueError(
                f"rho1 {self.rho1!r}: must be a whole number of 0 or more, the general batches before each task batch"
            )
        if not self.rho2 >= 0:
            raise ValueError(f"rho2 {self.rho2!r}: must be 0 or more, the weight of the MLM loss in a task batch")
        if self.stage_one is None and not isinstance(self.start, Pretrained):
            raise ValueError("stage_one None: give start, the Pretrained encoder that stage two begins with")
        if self.counts is not None and (self.stage_one is None or self.start.width is None):
            raise ValueError(
                f"counts {self.counts}: need a stage one and a start that knows its width, such as Scratch; give "
                "counts=None"
            )
        if not self.objectives or len({objective.name for objective in self.objectives}) < len(self.objectives):
            raise ValueError(f"objectives {self.objectives!r}: give one or more, each with a name of its own")
        if self.rho1 is None and self.k == 0:
            raise ValueError("rho1 None: without task batches k must be 1 or more, or there is nothing to train on")
        longest, positions = max(self.block_tokens, self.task_tokens), self.start.positions
        if positions is not None and longest > positions:
            raise ValueError(f"block_tokens and task_tokens: {longest} is more than the model's {positions} positions")

    @property
    def uses_general(self) -> bool:
        """Whether general text is an input at all: without it, neither corpus nor retrieval matters."""
        return self.k > 0 and self.rho1 != 0 and self.stage_one is not None

    def settled(self, *, gpu: bool) -> "Recipe":
        """Return the recipe with a precision that names a result: "auto" is settled for GPUs, or for this processor."""
        return replace(self, precision=fastest_precision(gpu=gpu)) if self.precision == "auto" else self

    def settings_one(self, seed: int) -> StageOne:
        """Return the settings of stage one.

        Without general text k and rho1 fall away, and with them the method: such recipes are one training.
        """
        if self.stage_one is None:
            raise ValueError("stage_one None: this recipe begins with stage two")
        return StageOne(
            start=self.start,
            schedule=self.stage_one,
            objectives=self.objectives,
            optimizer=self.optimizer,
            k=self.k if self.uses_general else 0,
            rho1=self.rho1 if self.uses_general else 0,
            rho2=self.rho2,
            weighting=self.weighting,
            precision=self.precision,
            seed=seed,
        )

    def settings_two(self, seed: int, start: Start) -> StageTwo:
        """Return the settings of stage two, which begins with stage one's model or a pretrained encoder."""
        return StageTwo(
            start=start,
            schedule=self.stage_two,
            labels=self.labels,
            optimizer=self.optimizer,
            precision=self.precision,
            seed=seed,
        )


BASE = Geometry(layers=12, width=768, heads=12, intermediate=3072)
LARGE = Geometry(layers=24, width=1024, heads=16, intermediate=4096)
# ModernBERT learns to attend in a third of the steps of a BERT of this size. No dropout: a few thousand steps do not
# overfit, and drawing it takes a third of a step on a CPU.
SMALLEST = Geometry(family="modernbert", layers=2, width=128, heads=2, intermediate=384, positions=128, dropout=0.0)

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
    ),
}


def recipe_for(task: str, scale: str, *, train_rows: int = 0) -> Recipe:
    """Return the paper's recipe of a task at a scale, or one of our own for CPUs.

    tiny is for the embedded data, two minutes on a core; mini for real tasks and text, four to five minutes on
    a core.

    A task that is not the paper's gets the settings that the paper's rule gives its size: K = 5000 below 5,000
    training rows, 50 above 100,000, else 500, doubled at large (section 4.1), with the rho1 and rho2 of the paper's
    task of that kind. Stage two of our own passes ten times over the training rows, in 200 to 1,000 steps:
    with 200 for SciERC's 3,219 rows a tiny BERT scored 28, with 1,000 it scored 34 (macro-F1, two seeds).
    """
    if scale in OWN_RECIPES:
        two = OWN_RECIPES[scale].stage_two
        steps = min(max(two.steps, 10 * train_rows // two.batch_rows), 1_000)
        longer = replace(two, steps=steps, warmup_steps=steps // 10, evaluate_every=steps // 4)
        return replace(OWN_RECIPES[scale], stage_two=longer)
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


def baseline(recipe: Recipe, start: str, kind: str = "plain") -> Recipe:
    """Return the recipe of a pretrained encoder with the same stage two: a baseline row.

    start: a hub name or a local folder that holds an encoder and its tokenizer. kind: what comes before stage two:
    "plain": nothing. "mlm": stage one on the task alone (PLM + MLM, table 8). "tapt": MLM on the task's training text,
    labels unseen; "dapt": MLM on passages drawn at random, from a corpus that is of the task's domain (Gururangan et
    al. 2020). "tlm": the recipe's own stage one.
    """
    if kind not in BASELINES:
        raise ValueError(f"baseline {kind!r}: allowed are {', '.join(BASELINES)}")
    start = storage.absolute_if_there(start)  # workers have another working folder
    return replace(recipe, start=Pretrained(start), tokenizer=start, counts=None, **BASELINES[kind])
