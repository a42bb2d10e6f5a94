"""Low-rank adapters in stage two: what learns, what does not, and a model that opens without PEFT."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from small import small_flow, small_recipe
from trainings import (
    GEOMETRY,
    assert_same_run,
    make_model,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_interrupted,
    run_whole,
    stage_two,
)
from transformers import AutoModelForSequenceClassification
from transformers.pytorch_utils import Conv1D

from tlm_ray import make
from tlm_ray.training.encoders.adapters import Lora
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.checkpoints import snapshot
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Labels, Spans, TextLabels
from tlm_ray.training.planned_flops import step_flops

PLANNED = [stage_two(start=Scratch(replace(GEOMETRY, layers=2)), adapters=each) for each in (None, Lora(rank=1))]
FAMILIES = ("bert", "modernbert", "gpt2", "distilbert", "electra", "albert")


def adapted(family="bert", rank=4):
    return stage_two(start=Scratch(replace(GEOMETRY, family=family, layers=2)), adapters=Lora(rank=rank, alpha=8.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_and_the_matrices_learn_and_nothing_else(family):
    trainer = make_trainer(adapted(family))
    before = snapshot(trainer.model)
    trainer.step(0), trainer.step(1)
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p.detach(), before[name])}
    assert {name for name in before if "lora_B" in name} <= moved, "each matrix learns; the first ones from step 1 on"
    assert any(name.startswith("heads.") for name in moved)
    assert {name for name in moved if name.startswith("encoder.") and "lora_" not in name} == set()
    plain = make_model(replace(adapted(family), adapters=None)).encoder
    linear = [layer for layer in plain.modules() if isinstance(layer, (torch.nn.Linear, Conv1D))]
    assert len([name for name in before if "lora_A" in name]) == len(linear) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_they_begin_as_the_model_without_them_and_are_merged_into_its_weights(family, tmp_path):
    settings = adapted(family)
    trainer, plain = make_trainer(settings), make_model(replace(settings, adapters=None)).on("cpu").eval()
    inputs, _ = to_device(trainer.batches.batch(0), "cpu")
    model = trainer.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model.scores(inputs), plain.scores(inputs), rtol=1e-6, atol=1e-6)
        model.train()
    for step in range(4):
        trainer.step(step)
    with torch.no_grad():
        learned = model.eval().scores(inputs)
        assert (learned - plain.scores(inputs)).abs().max() > 1e-2
        settings.adapters.merge(model.encoder)
        torch.testing.assert_close(model.scores(inputs), learned, rtol=1e-5, atol=1e-5)
        model.export(Labels(), tmp_path, precision="fp32")
        opened, told = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
        torch.testing.assert_close(opened.eval()(**inputs).logits, learned, rtol=1e-4, atol=1e-4)
    assert told["missing_keys"] == told["unexpected_keys"] == set()


def test_a_training_goes_on_to_the_bit(tmp_path):
    assert_same_run(run_whole(adapted()), run_interrupted(tmp_path, [3, 8], lambda: make_trainer(adapted())))


@pytest.mark.usefixtures("alone")
def test_a_recipe_makes_a_row_and_tells_what_it_trained(data, tmp_path):
    recipe = small_recipe()
    flow = small_flow(data, tmp_path)
    whole = flow.stages(recipe, "topics", 0)
    stages = flow.stages(replace(recipe, adapters=Lora(rank=2)), "topics", 0)
    assert stages.stage_one.fingerprint == whole.stage_one.fingerprint, "stage one trains all its weights"
    assert stages.stage_two.fingerprint != whole.stage_two.fingerprint
    make([stages.metrics], flow.execution.root)
    facts = stages.stage_two.record(flow.execution.root)["facts"]
    assert 0 < facts["parameters_trained"] < facts["parameters"] / 2 and facts["flops_counted"] > 0
    assert "parameters_trained" not in stages.stage_one.record(flow.execution.root)["facts"]
    opened = AutoModelForSequenceClassification.from_pretrained(f"{stages.stage_two.folder(flow.execution.root)}/model")
    assert not any("lora" in name for name in opened.state_dict())


def test_frozen_weights_cost_no_operations_of_their_gradients():
    whole, few = (step_flops(one, vocabulary=200, row_tokens=(20, 20), longest=(32, 32)) for one in PLANNED)
    assert 0.5 * whole < few < 0.8 * whole, "two thirds, and the matrices' own"


def test_what_cannot_be_is_refused_by_name(monkeypatch):
    with pytest.raises(ValueError, match="adapters rank 0: must be a whole number of 1 or more, such as 8"):
        Lora(rank=0)
    for alpha in (0, float("inf"), "16"):
        with pytest.raises(ValueError, match=f"adapters alpha {alpha!r}: must be above 0, such as twice the rank"):
            Lora(alpha=alpha)
    with pytest.raises(ValueError, match="adapters: are trained in stage two, which one_stage leaves out"):
        small_recipe(one_stage=True, adapters=Lora())
    t5 = Scratch(replace(GEOMETRY, family="t5", positions=64))
    with pytest.raises(ValueError, match="adapters: are for encoders; a decoder trains all its weights"):
        small_recipe(start=t5, vocabulary=300, labels=TextLabels(), objectives=(Spans(),), adapters=Lora())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"adapters: need peft, on every node; pip install 'tlm_ray\[adapters\]'"):
        Lora()
