"""Numbers are learned alike in every unit, and the exported model predicts them in the labels' own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from small import GEOMETRY
from small_data import TOPICS
from torch import nn
from trainings import one_thread  # noqa: F401 - a fixture

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.training.encoders.marked import MarkedForSequenceClassification
from tlm_ray.training.encoders.scaled import Scaled, scale_to
from tlm_ray.training.encoders.starts import Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import MarkedLabels
from tlm_ray.training.scoring.evaluation import evaluate
from tlm_ray.training.scoring.predictor import Classifier
from tlm_ray.training.settings import Job, StageTwo
from tlm_ray.training.stage import run_job
from tlm_ray.training.tokens.blocks import write_task_blocks
from tlm_ray.training.tokens.tokenizer import train_wordpiece

STEPS = Schedule(
    steps=40, batch_rows=16, learning_rate=3e-3, warmup_steps=4, weight_decay=0.0, evaluate_every=20, log_every=40
)
RANDOM = np.random.default_rng(0)
COUNTS = RANDOM.integers(0, 8, 120)  # of a word in a text, which is what a text's number is about
TEXTS = [" ".join(["wave"] * count + [*RANDOM.choice(TOPICS["sky"], 8 - count)]) for count in COUNTS]
UNITS = {"counts": (1.0, 0.0), "years": (1.0, 2010.0), "prices": (1e4, 0.0)}


def trained(folder: Path, unit: str, precision: str = "fp32", family: str = "bert") -> tuple[np.ndarray, dict, dict]:
    """Return the exported model's numbers, the training's facts and the exported model's scores."""
    size, shift = UNITS[unit]
    labels = size * COUNTS + shift
    table = pa.table({"text": TEXTS, "text_pair": [""] * len(TEXTS), "label": labels})
    tokenizer = train_wordpiece(TEXTS, vocabulary=120)
    tokenizer.model_max_length = 16
    tokenizer.save_pretrained(folder / "blocks" / "tokenizer")
    for split in ("train", "dev", "test"):
        write_task_blocks(str(folder / "blocks" / f"{split}.arrow"), table, tokenizer, task_tokens=16)
    storage.write_record(str(folder / "blocks" / "facts.json"), {"labels": [], "metric": "pearson_spearman"})
    start = Scratch(replace(GEOMETRY, family=family))
    settings = StageTwo(start=start, schedule=STEPS, precision=precision, seed=0)
    job = Job(folder=str(folder / "job"), blocks=str(folder / "blocks"), settings=settings, compute=Compute())
    facts = run_job(job, Worker(precision=precision))
    model = str(folder / "job" / "model")
    scores = evaluate(
        str(folder / "scores"), job.blocks, model, metric="", precision=precision, device="cpu", threads=1
    )
    return Classifier.open(model, "cpu", precision).logits([TEXTS])[:, 0], facts, scores


@pytest.mark.parametrize("unit", ["years", "prices"])
def test_numbers_of_any_unit_are_learned_alike(unit, tmp_path):
    (size, shift), (plain, *_) = UNITS[unit], trained(tmp_path / "plain", "counts")
    found, facts, scores = trained(tmp_path / "unit", unit)
    assert np.corrcoef(plain, COUNTS)[0, 1] > 0.9 and abs(plain.mean() - COUNTS.mean()) < 0.5
    np.testing.assert_allclose((found - shift) / size, plain, atol=0.05)
    assert facts["dev"] == pytest.approx(scores["dev"], abs=0.01)


def test_bf16_tells_years_apart(tmp_path):
    found, facts, scores = trained(tmp_path, "years", "bf16")
    assert len({*found.tolist()}) > 50 and np.corrcoef(found, COUNTS)[0, 1] > 0.9
    assert facts["dev"] == pytest.approx(scores["dev"], abs=0.1)


def test_a_decoder_whose_last_layer_has_no_bias_learns_prices(tmp_path):
    found, *_ = trained(tmp_path, "prices", family="gpt2")
    assert abs(found / 1e4 - COUNTS).mean() < 1.5


@pytest.mark.parametrize("bias", [True, False])
def test_a_folded_layer_returns_the_same(bias):
    layer, x = Scaled(nn.Linear(4, 1, bias=bias)), torch.randn(5, 4)
    scale_to([layer], np.array([2010.0, 2012.0]))
    assert (layer.mean, layer.sd) == ((2011.0, 1.0) if bias else (0.0, pytest.approx(2011.0, abs=0.01)))
    before = layer(x)
    layer.fold()
    torch.testing.assert_close(nn.functional.linear(x, layer.weight, layer.bias), before)
    torch.testing.assert_close(layer(x), before)


def test_equal_labels_are_not_scaled():
    layer = Scaled(nn.Linear(4, 1))
    scale_to([layer], np.full(7, 0.1))
    assert layer.sd == 1.0 and layer.mean == pytest.approx(0.1)


def test_numbers_of_marked_spans_are_exported_in_their_unit(tmp_path):
    config = scratch_config(GEOMETRY, vocabulary=80, pad_id=0, labels=())
    model = JointModel(RandomWeights(config, seed=0), (MarkedLabels(),)).on("cpu").eval()
    model.scale_to(np.array([1990.0, 2030.0]), (MarkedLabels(),))
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    with torch.no_grad():
        before = model.scores(inputs)
        model.export(MarkedLabels(), tmp_path, precision="fp32")
        opened = MarkedForSequenceClassification.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(opened(**inputs).logits, before)
        torch.testing.assert_close(model.scores(inputs), before)
    assert 1900 < float(before) < 2100
