"""What must not change by accident: the fingerprints of recipes' stages, and the first losses of our own recipes.

If one does, what a stage makes has changed, or what names it: raise the version of the stage in
tlm_ray/runs/flow/flow.py, then write the new numbers into tests/golden.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainings import one_thread  # noqa: F401 - a fixture

from tlm_ray.corpus.embedded import packages
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.methods import Bm25, Dense, Random
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.cpu import SMALLEST
from tlm_ray.runs.recipes.fine_tuning import with_fine_tuning
from tlm_ray.runs.recipes.paper import BASELINES, TABLE_B1, baseline, recipe_for
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.stage import unique
from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Architecture, Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import NUMBERS, StageOne, StageTwo
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

GOLDEN = Path(__file__).parent / "golden"
FINGERPRINTS = json.loads((GOLDEN / "fingerprints.json").read_text())
LOSSES = json.loads((GOLDEN / "losses.json").read_text())
# tiny as it was when the golden fingerprints were made
TINY = Geometry(layers=2, width=128, heads=2, intermediate=512, positions=128, dropout=0.0, init_std=0.05)
THEN: dict[str, Any] = {"k": 10, "depth": 10, "counts": None, "precision": "bf16", "labels": Labels()}
HUB = "google-bert/bert-base-uncased"


def selected(method: str, *, analyzer: Analyzer | None = None, encoder: str = "") -> dict[str, Any]:
    """Return the fields of a recipe that say how passages are chosen."""
    if encoder:
        return {"method": Dense(encoder=encoder)}
    if analyzer is None:
        return {"method": method}
    bm25 = Bm25(analyzer=analyzer)
    return {"method": bm25 if method == "bm25" else Random(like=bm25)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training whose stages have golden fingerprints."""

    recipe: Callable[[str], Recipe]
    """of the folder of an encoder"""
    task: str = "topics"
    seed: int = 0
    metric: str = ""


def _topics(recipe: Recipe | None = None, /, **changes: Any) -> Case:
    return Case(recipe=lambda encoder: replace(recipe or MINE, **changes))


def _embedded(scale: str, seed: int = 0, **changes: Any) -> Case:
    return Case(recipe=lambda encoder: replace(_then("docstrings", scale), **changes), task="docstrings", seed=seed)


def _then(task: str, scale: str, **options: Any) -> Recipe:
    """Return the recipe that a scale had when the golden fingerprints were made."""
    recipe = recipe_for(task, scale, **options)
    if scale not in ("tiny", "mini") or recipe.stage_one is None:
        return recipe
    steps, start = (2_000, Scratch(TINY)) if scale == "tiny" else (4_000, recipe.start)
    one = replace(recipe.stage_one, steps=steps, warmup_steps=steps // 10, evaluate_every=500)
    two = replace(recipe.stage_two, steps=200, warmup_steps=20, evaluate_every=50, averaged=0.0)
    return replace(recipe, stage_one=one, stage_two=two, start=start, **THEN)


def _fine_tuned(encoder: str, kind: str) -> Recipe:
    """Return the recipe of a pretrained encoder with the ten passes that it had then."""
    made = baseline(MINE, encoder, kind, train_rows=8)
    return replace(made, stage_two=with_fine_tuning(made, train_rows=8, passes=10).stage_two)


MINE = _then("topics", "mini", train_rows=8)
CASES = {
    "analyzer": _topics(**selected("bm25", analyzer=Analyzer(stopwords="english", stemmer="english"))),
    "analyzer random": _topics(**selected("random", analyzer=Analyzer(stemmer="english"))),
    "architecture": _topics(start=Architecture("answerdotai/ModernBERT-base")),
    "architecture local": Case(recipe=lambda encoder: replace(MINE, start=Architecture(encoder))),
    "cut": _topics(k=3, depth=50),
    "external only": _topics(rho1=None),
    "hub tokenizer": _topics(tokenizer=HUB),
    "lengths": _topics(passage_tokens=64, block_tokens=64, task_tokens=32, vocabulary=500),
    "method dense local": Case(recipe=lambda encoder: replace(MINE, **selected("dense", encoder=encoder))),
    "precision": _topics(precision="fp32"),
    "regression": Case(
        recipe=lambda encoder: _then("stsb", "mini", train_rows=8), task="stsb", metric="pearson_spearman"
    ),
    "rho": _topics(rho1=19, rho2=0.5, weighting="paper"),
}
CASES |= {f"method {method}": _topics(**selected(method)) for method in ("rake", "dense", "dsir", "random")}
for kind in BASELINES:
    CASES[f"baseline hub {kind}"] = Case(recipe=partial(lambda encoder, kind: _fine_tuned(HUB, kind), kind=kind))
    CASES[f"baseline local {kind}"] = Case(recipe=partial(_fine_tuned, kind=kind))
for scale in ("tiny", "mini"):
    CASES[f"embedded {scale}"] = _embedded(scale)
    CASES[f"embedded {scale} seed 1"] = _embedded(scale, seed=1)
    CASES[f"embedded {scale} random"] = _embedded(scale, **selected("random"))
    CASES[f"embedded {scale} task only"] = _embedded(scale, k=0, rho1=0)
for scale in ("tiny", "mini", *TABLE_B1):
    for task in ("topics", "imdb", "sciie"):
        given = _then(task, scale, train_rows=8)
        CASES[f"{scale} {task}"] = Case(recipe=partial(lambda encoder, given: given, given=given), task=task)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, tasks and something that looks like an encoder."""
    folder = tmp_path_factory.mktemp("golden")
    for name in ("corpus", "encoder", *(f"tasks/{task}" for task in ("topics", "imdb", "sciie", "chemprot", "stsb"))):
        (folder / name).mkdir(parents=True)
    lines = [json.dumps({"text": f"passage number {i} of the corpus"}) for i in range(20)]
    (folder / "corpus" / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "corpus" / "b.txt").write_text("one document\n\nanother document\n")
    for task in (folder / "tasks").iterdir():
        for split, rows in (("train", 8), ("dev", 4), ("test", 4)):
            labels = [str(i / 4) if task.name == "stsb" else "ab"[i % 2] for i in range(rows)]
            texts = "".join(f"{split} text {i} of {task.name},{label}\n" for i, label in enumerate(labels))
            (task / f"{split}.csv").write_text(f"text,label\n{texts}")
    (folder / "encoder" / "config.json").write_text('{"model_type": "bert"}\n')
    (folder / "encoder" / "model.safetensors").write_bytes(b"not really\n")
    return folder


def test_every_golden_training_is_a_case():
    assert CASES.keys() == FINGERPRINTS.keys()


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints_are_golden(name, files, monkeypatch):
    monkeypatch.setattr(packages, "installed_packages", lambda: {"numpy": "2.0"})
    case, flow = CASES[name], Flow(execution=Execution(root=str(files / "root")))
    if case.task != "docstrings":
        own = {"corpus": open_corpus(str(files / "corpus"), column="text"), "task_root": str(files / "tasks")}
        flow = replace(flow, metric=case.metric, **own)
    found: dict[str, list[str]] = {}
    for stage in unique([flow.stages(case.recipe(str(files / "encoder")), case.task, case.seed).metrics]):
        found.setdefault(stage.name, []).append(stage.fingerprint[:20])
    assert found == FINGERPRINTS[name]


WORDS = Vocabulary(size=500, pad_id=0, mask_id=4, special_ids=(0, 1, 2, 3, 4))
STAGE_ONE = Schedule(
    steps=20, batch_rows=32, learning_rate=1e-3, warmup_steps=4, weight_decay=0.01, evaluate_every=20, log_every=1
)


def blocks(rows: int, *, seed: int, labels: bool) -> Blocks:
    """Rows of tokens of Zipf's frequencies."""
    rng = np.random.default_rng(seed)
    lengths, shares = rng.integers(6, 60, rows), 1 / np.arange(1, WORDS.size - 4)
    tokens = rng.choice(np.arange(5, WORDS.size), lengths.sum(), p=shares / shares.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Blocks(tokens, offsets, labels=rng.integers(0, 3, rows) if labels else None)


@pytest.mark.parametrize("stage", ["one", "two"])
@pytest.mark.parametrize("scale", ["tiny", "mini"])
def test_first_losses_are_golden(scale, stage):
    start = Scratch({"tiny": TINY, "mini": SMALLEST}[scale])
    common: dict[str, Any] = {"start": start, "precision": "fp32", "seed": 0}
    settings: StageOne | StageTwo = StageTwo(schedule=replace(STAGE_ONE, weight_decay=0.0), **common)
    if stage == "one":
        settings = StageOne(schedule=STAGE_ONE, k=10, rho1=3, rho2=20, weighting="released", **common)
    rows = {"general": blocks(400, seed=0, labels=False), "task": blocks(90, seed=1, labels=True)}
    streams = tuple(
        Stream(name=name, number=NUMBERS[name], blocks=rows[name], loss=loss, batch_rows=32, seed=0)
        for name, loss in settings.losses.items()
    )
    config = scratch_config(start.geometry, vocabulary=WORDS.size, pad_id=WORDS.pad_id, labels=("a", "b", "c"))
    batches = Batches(streams=streams, mixer=settings.mixer, vocabulary=WORDS, seed=0)
    model = JointModel(RandomWeights(config, seed=0), settings.heads)
    history = Trainer(model, batches, settings.schedule, Worker()).run(lambda *_: None).history
    for entry, expected in zip(history, LOSSES[f"{scale} stage {stage}"], strict=True):
        assert {name: entry[name] for name in expected} == pytest.approx(expected, rel=1e-6)
