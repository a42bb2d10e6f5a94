"""A decoder: causal language modelling by GPT-2, then a classifier."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import trainings
from trainings import (
    GEOMETRY,
    LABELS,
    SCHEDULE,
    make_batches,
    one_thread,  # noqa: F401 - a fixture
    run_whole,
    stage_one,
    stage_two,
)
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Clm, Labels
from tlm_ray.training.settings import StageOne
from tlm_ray.training.tokens.blocks import Blocks

GPT2 = replace(GEOMETRY, family="gpt2", init_std=0.1)


def counting(rows: int, *, seed: int, labels: bool) -> Blocks:
    """Rows that count up by 1, 2 or 3, which is their label."""
    rng = np.random.default_rng(seed)
    lengths, steps = rng.integers(6, 24, rows), rng.integers(1, 4, rows)
    text = [5 + (rng.integers(0, 75) + steps[i] * np.arange(lengths[i])) % 75 for i in range(rows)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Blocks(np.concatenate(text).astype(np.int32), offsets, labels=steps - 1 if labels else None)


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    rows = {"general": counting(400, seed=0, labels=False), "task": counting(60, seed=1, labels=True)}
    monkeypatch.setattr(trainings, "ROWS", rows)


def settings(steps: int) -> StageOne:
    schedule = replace(SCHEDULE, steps=steps, evaluate_every=steps)
    return stage_one(geometry=GPT2, objectives=(Clm(),), schedule=schedule)


def test_a_decoder_learns_to_count_and_to_classify_and_opens_in_transformers(tmp_path):
    trainer = run_whole(settings(150))
    history = trainer.progress.history
    assert history[0]["general_clm"] > 4 and history[-2]["general_clm"] < 2
    assert trainer.progress.flops > 0
    classifier_weights = len(LABELS) * GEOMETRY.width
    assert sum(p.numel() for p in trainer.model.parameters()) == GPT2.parameters(vocabulary=80) + classifier_weights
    trainer.model.export(Clm(), tmp_path / "one", precision="fp32")
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "one").eval()
    batch = make_batches(settings(150)).batch(0)
    inputs, predictions = to_device(batch, "cpu")
    with torch.no_grad():
        own = trainer.model.eval()(inputs, predictions)["clm"] / batch.targets["clm"].total
        wanted = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        torch.testing.assert_close(opened(**inputs, labels=wanted).loss, own)

    two = stage_two(schedule=replace(SCHEDULE, steps=60, evaluate_every=60))
    model = JointModel(TrainedWeights(tmp_path / "one", labels=LABELS, seed=0), (Labels(),))
    second = Trainer(model, make_batches(two), two.schedule, Worker())
    second.run(lambda *_: None)
    assert second.progress.history[-1]["task"] < 0.5 * second.progress.history[0]["task"]
    model.export(Labels(), tmp_path / "two", precision="fp32")
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "two").eval()
    tokens = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    inputs = {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
    with torch.no_grad():
        torch.testing.assert_close(model.eval().scores(inputs), classifier(**inputs).logits)


def test_packed_rows_see_nothing_ahead():
    padded, packed = run_whole(settings(12)), run_whole(settings(12), Worker(packed=True))
    for one, other in zip(padded.progress.history, packed.progress.history, strict=True):
        for name in {"general_clm", "task_clm", "task"} & one.keys():
            assert one[name] == pytest.approx(other[name], rel=1e-4)
