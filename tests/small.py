"""A recipe that trains in a second, and the options of a run on the small data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.stage import Stages
from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.schedules import Schedule

GEOMETRY = Geometry(layers=1, width=32, heads=2, intermediate=64, positions=64, dropout=0.0, init_std=0.1)
STAGE_ONE = Schedule(
    steps=12, batch_rows=8, learning_rate=1e-3, warmup_steps=2, weight_decay=0.01, evaluate_every=4, log_every=1
)
STAGE_TWO = Schedule(
    steps=6, batch_rows=8, learning_rate=1e-3, warmup_steps=1, weight_decay=0.0, evaluate_every=3, log_every=1
)


def small_recipe(**changes: Any) -> Recipe:
    """Return a recipe of one narrow layer and a dozen steps."""
    base = replace(
        TINY_RECIPE, start=Scratch(GEOMETRY), counts=None, vocabulary=200, stage_one=STAGE_ONE, stage_two=STAGE_TWO,
        k=5, depth=10, rho1=2, block_tokens=48, task_tokens=48, passage_tokens=48, precision="fp32",
    )  # fmt: skip
    return replace(base, **changes)


def small_flow(data: Path, root: Path, **execution: Any) -> Flow:
    """Return the flow over the small data."""
    corpus = open_corpus(str(data / "corpus"), column="text")
    return Flow(execution=Execution(root=str(root), **execution), corpus=corpus, task_root=str(data / "tasks"))


def long_recipe() -> Recipe:
    """Return a recipe whose stage one, with dropout, is long enough to be interrupted: it has 5 checkpoints."""
    stage_one = replace(STAGE_ONE, steps=120, evaluate_every=20, warmup_steps=5)
    return small_recipe(stage_one=stage_one, start=Scratch(replace(GEOMETRY, dropout=0.1)))


def laid_out(flow: Flow, **changes: Any) -> Stages:
    """Return the stages of one training of a small recipe on the small data."""
    return flow.stages(small_recipe(**changes), "topics", 0)


SELECTED = "selection-00000.arrow"  # all of a small selection


def read_selection(folder):
    """Return all rows of a neighbours stage."""
    return SelectionStore.open(str(folder)).read()
