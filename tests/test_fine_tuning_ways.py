"""Ways to fine-tune: an auxiliary loss, learning rates by layer, layers that learn later."""

from dataclasses import replace

import pytest
import torch
from small import GEOMETRY as SMALL
from small import small_flow, small_recipe
from torch.nn.functional import cross_entropy
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
from transformers import GPT2ForSequenceClassification, GPT2LMHeadModel

from tlm_ray import make
from tlm_ray.training.encoders.depths import depths_of
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.checkpoints import snapshot
from tlm_ray.training.loop.optimizers import FIRST, SHARE, AdamW, rate_of
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Clm, Labels, Mlm, Nsp, SoftTokens, step_loss

GPT = replace(GEOMETRY, family="gpt2", layers=2, init_std=0.3)


def of_decoder(**changes):
    return stage_two(start=Scratch(GPT), auxiliary=(Clm(times=0.5),), **changes)


def test_the_auxiliary_loss_is_gpts(tmp_path):
    """L_task + 0.5 L_text (Radford et al. 2018, equation 5), each as transformers computes it."""
    own = of_decoder()
    trainer = make_trainer(own)
    batch, model = trainer.batches.batch(0), make_model(own).on("cpu").eval()
    inputs, predictions = to_device(batch, "cpu")
    with torch.no_grad():
        sums = model(inputs, predictions)
        found = step_loss(sums, batch.targets, batch.loss, token_share=1.0, world=1)
        model.export(Labels(), tmp_path / "labels", precision="fp32")
        model.export(Clm(), tmp_path / "text", precision="fp32")
        classifier = GPT2ForSequenceClassification.from_pretrained(tmp_path / "labels").eval()
        decoder = GPT2LMHeadModel.from_pretrained(tmp_path / "text").eval()
        logits = classifier(**inputs).logits
        wanted = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        expected = cross_entropy(logits, predictions["labels"].values) + 0.5 * decoder(**inputs, labels=wanted).loss
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_it_is_logged_counted_and_resumed_to_the_bit(tmp_path):
    whole = run_whole(of_decoder())
    assert {"task", "task_clm"} <= whole.progress.history[0].keys() and whole.progress.flops > 0
    assert_same_run(whole, run_interrupted(tmp_path, [3, 8], lambda: make_trainer(of_decoder())))


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
def test_depths_run_from_the_embeddings_to_the_heads(family):
    model = make_model(stage_two(start=Scratch(replace(GEOMETRY, family=family, layers=3))))
    depths = depths_of(model)
    assert set(depths.values()) == {0, 1, 2, 3, 4}
    for name, depth in depths.items():
        layer = next((int(part) for part in name.split(".") if part.isdigit()), None)
        assert layer is None or depth == layer + 1, name
        assert (depth == 4) == name.startswith("heads."), name
    assert all(depth == 0 for name, depth in depths.items() if "embeddings" in name or ".wte." in name)


def test_rates_fall_from_layer_to_layer_and_layers_learn_later():
    model = make_model(stage_two(start=Scratch(replace(GEOMETRY, family="bert", layers=2))))
    optimizer = AdamW(layer_decay=0.5, unfreeze_every=3).make(model, weight_decay=0.1)
    names = {id(p): name for name, p in model.named_parameters()}
    depths = depths_of(model)
    seen = []
    for group in optimizer.param_groups:
        (depth,) = {depths[names[id(p)]] for p in group["params"]}
        assert (group[SHARE], group[FIRST]) == (0.5 ** (3 - depth), 3 * (3 - depth))
        assert all((p.ndim > 1) == (group["weight_decay"] == 0.1) for p in group["params"])
        seen += [id(p) for p in group["params"]]
    assert sorted(seen) == sorted(names), "each parameter is in one group"
    group = {SHARE: 0.25, FIRST: 6}
    assert [rate_of(group, 0.1, step) for step in (5, 6)] == [0.0, 0.025] and rate_of({}, 0.1, 0) == 0.1


def test_a_layer_does_not_move_before_its_step(tmp_path):
    own = stage_two(start=Scratch(replace(GEOMETRY, family="bert", layers=2)), optimizer=AdamW(unfreeze_every=4))
    trainer = make_trainer(own)
    depths = depths_of(trainer.model)
    before = snapshot(trainer.model)
    for step in range(6):
        trainer.step(step)
    moved = {depths[name] for name, p in trainer.model.named_parameters() if not torch.equal(p.detach(), before[name])}
    assert moved == {2, 3}, "the heads from the first step, the last layer from the fourth"
    assert_same_run(run_whole(own), run_interrupted(tmp_path, [3, 8], lambda: make_trainer(own)))


@pytest.mark.usefixtures("alone")
def test_both_make_a_row(data, tmp_path):
    start = Scratch(replace(SMALL, family="gpt2"))
    recipe = small_recipe(
        start=start, objectives=(Clm(),), auxiliary=(Clm(times=0.5),), optimizer_two=AdamW(layer_decay=0.8)
    )
    flow = small_flow(data, tmp_path)
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    assert "task_clm" in stages.stage_two.record(flow.execution.root)["facts"]["history"][0]
    plain = flow.stages(replace(recipe, auxiliary=(), optimizer_two=None), "topics", 0)
    assert plain.stage_one.fingerprint == stages.stage_one.fingerprint
    assert plain.stage_two.fingerprint != stages.stage_two.fingerprint


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match=r"optimizer layer_decay 0: must be above 0 and at most 1, such as 0.8"):
        AdamW(layer_decay=0)
    with pytest.raises(ValueError, match="optimizer unfreeze_every -1: must be 0 or more steps"):
        AdamW(unfreeze_every=-1)
    with pytest.raises(ValueError, match=r"auxiliary .*: stage two has no teacher; give objectives such as Clm\(\)"):
        small_recipe(auxiliary=(Mlm(), SoftTokens()))
    for wrong in ((Mlm(), Mlm(times=2.0)), (Labels(),), (Nsp(),)):
        with pytest.raises(ValueError, match=r"auxiliary .*: give objectives of tokens, each once, such as Clm"):
            small_recipe(auxiliary=wrong)
