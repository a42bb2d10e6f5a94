"""Pretrained encoders as their users would train them: their own schedule, and a rate that dev scores choose."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score
from small import small_flow
from test_jobs import BIN, REPOSITORY, environment
from test_plain import make_task
from tracked import empty_store
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

from tlm_ray import baseline, pretraining, recipe_for, storage
from tlm_ray.evaluation.scores import score
from tlm_ray.plain import FrozenEncoder
from tlm_ray.runs.cli.options import Data
from tlm_ray.runs.cli.recipe_options import Budget, Changes, Mixture, TrainingOptions
from tlm_ray.runs.flow.plain import plain_stages
from tlm_ray.runs.recipes.fine_tuning import fine_tuning_passes, with_fine_tuning
from tlm_ray.runs.recipes.gururangan import with_gururangans_settings
from tlm_ray.runs.stages.registry import noted
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.objectives import Labels, Spans, TextLabels
from tlm_ray.training.tokens.tokenizer import train_wordpiece

PLM = "google-bert/bert-base-uncased"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    """A small BERT of random weights and its tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    train_wordpiece(make_task().train_texts, vocabulary=150).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=150, max_position_embeddings=128, initializer_range=0.3, **size)
    BertForMaskedLM(config).save_pretrained(folder)
    return str(folder)


def test_a_pretrained_encoder_is_fine_tuned_as_its_users_would():
    made = baseline(recipe_for("x", "mini", train_rows=3_219, row_words=30), PLM, train_rows=3_219)
    assert made.stage_two == Schedule(
        steps=1_010, batch_rows=32, learning_rate=1e-4, warmup_steps=101, weight_decay=0.01, evaluate_every=101
    ), "ten passes of 101 steps, each scored; a tenth of the steps warms up; no mean of weights"
    assert made.labels == Labels() != recipe_for("x", "mini", train_rows=9).labels, "no smoothing"
    rates = [made.stage_two.rate(step) for step in (0, 101, 1_010)]
    assert rates == [0, 1e-4, 0]


def test_an_encoder_replaces_an_earlier_stage_one():
    recipe = recipe_for("x", "mini", train_rows=60, row_words=30)
    after = baseline(recipe, pretraining(recipe))
    assert after.after is not None
    assert baseline(after, PLM, train_rows=60) == baseline(recipe, PLM, train_rows=60)


def test_a_pretrained_t5_writes_its_labels():
    recipe = recipe_for("x", "mini", train_rows=60, row_words=30)
    t5 = Scratch(replace(recipe.start.geometry, family="t5"))
    written = replace(recipe, start=t5, objectives=(Spans(),), labels=TextLabels(), counts=None)
    assert baseline(written, "google-t5/t5-small", train_rows=60).labels == TextLabels()


@pytest.mark.parametrize(
    ("rows", "passes", "steps", "evaluate_every"),
    [
        (24_748, 3, 3 * 774, 774),  # many rows: three passes
        (5_001, 7, 7 * 157, 157),  # three passes would be 471 steps
        (1_688, 19, 19 * 53, 101),  # ten passes would be 530 steps; scored ten times
        (64, 500, 500 * 2, 100),
    ],
)
def test_many_rows_get_three_passes_and_few_rows_a_thousand_steps(rows, passes, steps, evaluate_every):
    made = baseline(recipe_for("x", "mini", train_rows=rows), PLM, train_rows=rows).stage_two
    assert (fine_tuning_passes(rows), made.steps, made.evaluate_every) == (passes, steps, evaluate_every)


def test_passes_and_rate_may_be_given():
    made = baseline(recipe_for("x", "mini", train_rows=5_001), PLM, train_rows=5_001)
    own = with_fine_tuning(made, train_rows=64, passes=5, learning_rate=3e-4)
    assert (own.stage_two.steps, own.stage_two.learning_rate) == (10, 3e-4)
    with pytest.raises(ValueError, match="passes -1: must be 1 or more, or 0 for as many"):
        with_fine_tuning(made, train_rows=64, passes=-1)


def test_text_is_learned_at_a_rate_that_keeps_what_the_encoder_knows():
    recipe = recipe_for("x", "mini", train_rows=100)
    assert recipe.stage_one.learning_rate == 1e-3
    for kind in ("mlm", "tapt", "dapt", "tlm", "dapt+tapt"):
        made = baseline(recipe, PLM, kind, train_rows=100)
        stages = [one.stage_one for one in (made, made.after) if one is not None]
        assert [one.learning_rate for one in stages] == [1e-4] * (2 if "+" in kind else 1)
        assert replace(made.stage_one, learning_rate=1e-3) == recipe.stage_one
        assert made.stage_two.learning_rate == 1e-4


@pytest.mark.parametrize("scale", ["small", "medium", "large"])
def test_the_papers_scales_keep_the_papers_stage_two(scale):
    recipe = recipe_for("sciie", scale)
    for kind in ("plain", "mlm", "dapt+tapt"):
        made = baseline(recipe, PLM, kind)
        assert (made.stage_two, made.labels) == (recipe.stage_two, recipe.labels)
        assert kind == "plain" or made.stage_one == recipe.stage_one


@pytest.mark.parametrize("kind", ["plain", "mlm", "dapt+tapt"])
def test_what_the_recipe_itself_pretrains_keeps_its_schedule(kind):
    recipe = recipe_for("x", "mini", train_rows=100)
    made = baseline(recipe, pretraining(recipe), kind)
    assert made.stage_one == (None if kind == "plain" else recipe.stage_one)
    assert (made.stage_two, made.labels) == (recipe.stage_two, recipe.labels)


def test_without_the_number_of_training_rows_an_encoder_of_others_is_refused():
    with pytest.raises(ValueError, match="train_rows 0: fine-tuning passes over the training rows; give their number"):
        baseline(recipe_for("x", "mini", train_rows=9), PLM)


def test_an_experiment_takes_the_rows_from_the_task_and_heeds_steps_and_tokens(data, tmp_path):
    asked = (PLM, "plain", "topics", small_flow(data, tmp_path), Mixture())
    options = {"data": Data(tasks=["topics"], task_root=str(data / "tasks"))}
    plain = TrainingOptions(**options).fine_tuned(*asked)
    assert plain.stage_two.steps == 1_000, "60 rows, 32 a step"
    told = TrainingOptions(**options, changes=Changes(steps_two=4)).fine_tuned(*asked)
    assert (told.stage_two.steps, told.stage_two.learning_rate) == (4, 1e-4)
    cut = TrainingOptions(**options, budget=Budget(tokens=1_000 * 16 * 128))
    assert cut.fine_tuned(*asked).stage_two.steps == 500
    theirs = with_gururangans_settings(plain, train_rows=60)
    assert theirs.stage_two.learning_rate == 2e-5, "who asks for theirs gets theirs"


def embedded(encoder: str, texts: list[str]) -> np.ndarray:
    """Mean-pooled embeddings of length 1, text by text, by transformers alone."""
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), BertModel.from_pretrained(encoder).eval()
    with torch.inference_mode():
        found = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts]
    return torch.stack([each / each.norm() for each in found]).numpy()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_frozen_encoder_is_scikit_learns_regression_on_its_embeddings(encoder, classes):
    task = make_task(classes=classes)
    frozen = FrozenEncoder(source=encoder, strengths=(0.01, 1.0, 100.0))
    logits, chosen, kept = frozen.predict(task, "accuracy")
    train, dev, test = (embedded(encoder, task.texts(split)) for split in ("train", "dev", "test"))
    gold, labels = (task.splits[split]["label"].to_numpy() for split in ("dev", "train"))

    def fitted(strength: float, weights: str) -> LogisticRegression:
        own = LogisticRegression(C=strength, class_weight=None if weights == "none" else weights, tol=1e-8)
        return own.set_params(max_iter=10_000).fit(train, labels)

    settings = [(strength, weights) for weights in ("none", "balanced") for strength in frozen.strengths]
    scores = {one: score("accuracy", gold, fitted(*one).predict(dev)) for one in settings}
    best = fitted(chosen["C"], chosen["weights"])
    assert scores[chosen["C"], chosen["weights"]] == max(scores.values()) and kept is None
    expected = best.decision_function(test)
    expected = expected if classes > 2 else np.stack([0 * expected, expected], axis=1)
    np.testing.assert_allclose(logits["test"], expected, atol=0.02 * np.abs(expected).max())


def test_each_strength_is_fitted_though_it_goes_on_from_the_last(encoder):
    rows, labels = np.random.default_rng(0).normal(size=(200, 8)), np.arange(200) % 3
    rows /= 10 * np.linalg.norm(rows, axis=1, keepdims=True)
    for chosen, model in FrozenEncoder(source=encoder)._fitted(rows, labels, is_regression=False):
        options = {"C": chosen["C"], "class_weight": None if chosen["weights"] == "none" else "balanced"}
        alone = LogisticRegression(**options, tol=1e-9, max_iter=10_000).fit(rows, labels)
        np.testing.assert_allclose(model.weights, alone.coef_, atol=0.02 * np.abs(alone.coef_).max())


def test_a_frozen_encoder_predicts_numbers_by_ridge(encoder):
    task = make_task(metric="pearson_spearman")
    logits, chosen, _ = FrozenEncoder(source=encoder, strengths=(1.0,)).predict(task, "pearson_spearman")
    train, dev = (embedded(encoder, task.texts(split)) for split in ("train", "dev"))
    model = Ridge(alpha=1.0).fit(train, task.splits["train"]["label"].to_numpy())
    np.testing.assert_allclose(logits["dev"][:, 0], model.predict(dev), rtol=1e-3)
    assert chosen == {"C": 1.0}


def test_a_frozen_row_is_named_by_the_encoders_files_wherever_they_lie(encoder, data, tmp_path):
    flow, moved = small_flow(data, tmp_path / "root"), shutil.copytree(encoder, tmp_path / "moved")
    stages = [plain_stages(flow, FrozenEncoder(source=source), "topics").metrics for source in (encoder, str(moved))]
    assert stages[0].fingerprint == stages[1].fingerprint
    (moved / "tokenizer_config.json").write_text("{}")
    assert plain_stages(flow, FrozenEncoder(source=str(moved)), "topics").metrics.fingerprint != stages[0].fingerprint


def rivals(data: Path, encoder: str, root: Path, *more: str) -> subprocess.CompletedProcess:
    """Run the experiment as on a laptop."""
    command = [sys.executable, "experiments/rivals_pretrained.py", "--encoder", encoder, "--called", "small BERT"]
    command += ["--tasks", "topics", "--task-root", str(data / "tasks"), "--passes", "6", "--rates", "1e-9", "1e-2"]
    command += ["--root", str(root / "tlm"), "--out", str(root / "out"), "--tracking-uri", empty_store(root), *more]
    own = {k: v for k, v in environment().items() if k != "RAY_AUTH_MODE"} | {"PATH": f"{BIN}"}
    return subprocess.run(command, cwd=REPOSITORY, env=own, capture_output=True, text=True, timeout=1200)


def test_the_table_of_rivals_refuses_an_encoder_before_anything_is_made(data, tmp_path, called, capsys):
    config = BertConfig(vocab_size=150, max_position_embeddings=64, hidden_size=32, num_attention_heads=2)
    BertModel(config).save_pretrained(tmp_path / "short")
    train_wordpiece(make_task().train_texts, vocabulary=150).save_pretrained(tmp_path / "short")
    options = ["--tasks", "topics", "--task-root", f"{data}/tasks", "--root", f"{tmp_path}/tlm"]
    with pytest.raises(SystemExit):
        called("experiments/rivals_pretrained.py", "--encoder", f"{tmp_path}/short", *options)
    assert "does not read a row of 128 tokens" in " ".join(capsys.readouterr().out.split())
    assert not list((tmp_path / "tlm").rglob("record.json"))


@pytest.mark.long
@pytest.mark.slow
def test_pretrained_rivals_from_a_command_to_a_table(encoder, data, tmp_path):
    made = rivals(data, encoder, tmp_path, "--log-json", str(tmp_path / "events.jsonl"))
    assert made.returncode == 0, made.stderr
    tried = {stage for each in noted(str(tmp_path / "tlm")) if each.name.endswith("_rates") for stage in each.stages}
    assert sum(stage.startswith("stage_two/") for stage in tried) == 2, "or clean.py would delete them"
    assert "stage made" in (tmp_path / "events.jsonl").read_text()
    table = json.loads((tmp_path / "out" / "rivals_pretrained.json").read_text())
    cells = {cell["row"]: cell for cell in table["cells"]}
    frozen, tuned = (cells[f"small BERT {row}"] for row in ("frozen + logistic regression", "fine-tuned"))
    assert "TF-IDF + linear model" in cells and len(tuned["scores"]) == 2 and tuned["pretrained"]
    records = [json.loads(file.read_text()) for file in (tmp_path / "tlm" / "stage_two").glob("*/record.json")]
    made_of = [record["recipe"]["parameters"] for record in records]
    assert {own["schedule"]["steps"] for own in made_of} == {12}, "six passes of 60 rows, 32 a step"
    of_first = {
        own["schedule"]["learning_rate"]: record["facts"]["dev"]
        for own, record in zip(made_of, records, strict=True)
        if not own["seed"]
    }
    best = max(of_first, key=of_first.__getitem__)
    assert len(of_first) == 2 and [own["schedule"]["learning_rate"] for own in made_of if own["seed"]] == [best] == [
        1e-2
    ]
    printed = " ".join(made.stdout.split())  # a terminal breaks lines
    assert "fine-tuned for 6 epochs at rate 0.01, the highest tried; dev scores of seed 0" in printed
    assert "bert of 0.0 M weights, model.safetensors of sha256" in printed
    own = next(file for file in (tmp_path / "tlm" / "metrics").glob("*/record.json") if "Frozen" in file.read_text())
    said = storage.read_table(str(own.parent / "test_predictions.arrow")).to_pydict()
    expected = 100 * f1_score(said["gold"], said["predicted"], average="macro")
    assert frozen["scores"] == [pytest.approx(expected)] and frozen["pretrained"] and frozen["flops"] == 0

    plan = rivals(data, encoder, tmp_path, "--dry-run")
    assert plan.returncode == 0 and "to make" not in plan.stdout.replace("0 to make", ""), plan.stdout
