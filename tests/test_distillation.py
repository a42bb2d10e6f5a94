"""What a student learns from a teacher in stage one: against the papers' formulas, however a step is computed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import GEOMETRY as SMALL
from small import small_flow, small_recipe
from torch import nn
from trainings import (
    GEOMETRY,
    LABELS,
    make_model,
    one_thread,  # noqa: F401 - a fixture
    run_whole,
    stage_one,
)
from transformers import AutoModelForMaskedLM, BertForMaskedLM
from ways import batch_of

from tlm_ray import make
from tlm_ray.training.encoders.configs import kept_layers
from tlm_ray.training.encoders.starts import FewerLayers, Pretrained, Scratch
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Clm, Cosine, Labels, LayersOfTeacher, Mlm, SoftTokens

# weights far from 0, so that a part that is left out would show
STUDENT = replace(GEOMETRY, family="bert", layers=2, init_std=0.3)
TRIPLE = (Mlm(times=2.0), SoftTokens(), Cosine())
LAYERS = (LayersOfTeacher(), Mlm())


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    """The folder of a trained model of four layers."""
    folder = tmp_path_factory.mktemp("teacher")
    own = stage_one(geometry=replace(STUDENT, layers=4))
    make_model(own).export(Mlm(), folder, precision="fp32")
    return str(folder)


def settings(teacher, objectives=TRIPLE, **changes):
    return stage_one(geometry=STUDENT, objectives=objectives, teacher=teacher, **changes)


@pytest.fixture
def compared(teacher, tmp_path):
    """Return a function that gives our losses, means over predictions, and both whole models' outputs of all layers."""

    def compare(objectives):
        own = settings(teacher, objectives)
        model = make_model(own).on("cpu").eval()
        batch = batch_of(own, "general")
        length = int(batch.attention.sum(axis=1).min())  # without padding, as TinyBERT's means count it
        tokens, attention = batch.tokens[:, :length], batch.attention[:, :length]
        every = batch.targets[objectives[-1].name] if objectives is TRIPLE else batch.targets["layers"]
        batch = replace(
            batch,
            tokens=tokens,
            attention=attention,
            targets={
                name: replace(targets.of(slice(None), length), total=1) for name, targets in batch.targets.items()
            },
        )
        inputs, predictions = to_device(batch, "cpu")
        with torch.no_grad():
            sums = model(inputs, predictions)
            model.export(Mlm(), tmp_path, precision="fp32")
            outputs = []
            for folder in (tmp_path, teacher):
                whole = BertForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
                outputs.append((whole, whole(**inputs, output_hidden_states=True)))
        assert every.chosen is not None
        return sums, int(attention.sum()), inputs, outputs

    return compare


def test_soft_and_cosine_losses_are_those_of_distilbert(compared):
    """As its released code computes them: temperature 2, all attended tokens, batchmean times T squared."""
    sums, count, _, ((_, own), (_, known)) = compared(TRIPLE)
    s, t = (out.logits.flatten(0, 1) / 2 for out in (own, known))
    soft = nn.KLDivLoss(reduction="batchmean")(s.log_softmax(-1), t.softmax(-1)) * 4
    torch.testing.assert_close(sums["soft"] / count, soft, rtol=1e-5, atol=0)
    states = [out.hidden_states[-1].flatten(0, 1) for out in (own, known)]
    cosine = nn.CosineEmbeddingLoss(reduction="mean")(*states, torch.ones(count))
    torch.testing.assert_close(sums["cosine"] / count, cosine, rtol=1e-5, atol=0)


def test_a_projection_without_a_bias_has_the_same_loss_as_one_with_zeros(teacher):
    own, losses = settings(teacher), []
    for kept in (True, False):
        model = make_model(own).on("cpu").eval()
        for one in (model, model.teacher):
            last = one.heads[Mlm.name].last
            last.bias = nn.Parameter(torch.zeros_like(last.bias)) if kept else None
        inputs, predictions = to_device(batch_of(own, "general"), "cpu")
        losses.append(float(model(inputs, {"soft": predictions["soft"]})["soft"].detach()))
    assert losses[0] > 0 and losses[1] == pytest.approx(losses[0], rel=1e-6)


def scores_of(model, inputs):
    """Return each layer's attention scores before the softmax, as BERT's code makes them."""
    states = model(**inputs, output_hidden_states=True).hidden_states
    found = []
    for layer, state in zip(model.bert.encoder.layer, states, strict=False):
        own = layer.attention.self
        q, k = (
            part(state).view(*state.shape[:2], own.num_attention_heads, -1).transpose(1, 2)
            for part in (own.query, own.key)
        )
        found.append(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5)
    return found


def test_losses_of_layers_are_those_of_tinybert(compared):
    """Mean squared errors: states 0, 1, 2 against 0, 2, 4, and scores 0, 1 against 1, 3."""
    sums, count, inputs, ((student, own), (teacher, known)) = compared(LAYERS)
    mse = nn.functional.mse_loss
    states = sum(mse(own.hidden_states[i], known.hidden_states[2 * i]) for i in range(3))
    with torch.no_grad():
        mine, theirs = scores_of(student, inputs), scores_of(teacher, inputs)
    scores = sum(mse(mine[i], theirs[2 * i + 1]) for i in range(2))
    torch.testing.assert_close(sums["layers"] / count, states + scores, rtol=1e-5, atol=0)


def test_the_teacher_is_no_part_of_the_student(teacher, tmp_path):
    trainer = run_whole(settings(teacher))
    alone = make_model(stage_one(geometry=STUDENT))
    model = trainer.model
    assert [*dict(model.named_parameters())] == [*dict(alone.named_parameters())]
    assert {"general_mlm", "general_soft", "general_cosine", "task_soft"} <= set().union(*trainer.progress.history)
    before = AutoModelForMaskedLM.from_pretrained(teacher)
    for name, parameter in dict(model.teacher.encoder.named_parameters()).items():
        torch.testing.assert_close(parameter, dict(before.bert.named_parameters())[name], rtol=0, atol=0)
    own = run_whole(stage_one(geometry=STUDENT))
    # six passes through a layer and back, as two layers take, and four more through the teacher's
    assert trainer.progress.flops > 10 / 6 * own.progress.flops
    model.export(Mlm(), tmp_path, precision="fp32")
    assert BertForMaskedLM.from_pretrained(tmp_path).config.num_hidden_layers == 2


def test_layers_are_evenly_spaced():
    assert kept_layers(12, 6, with_last=True) == [0, 2, 4, 7, 9, 11]
    assert kept_layers(4, 2, with_last=True) == [0, 3]
    assert kept_layers(3, 1, with_last=True) == [0]
    some = [kept_layers(*numbers, with_last=False) for numbers in ((6, 2), (6, 3), (12, 4), (5, 3), (3, 3), (6, 1))]
    assert some == [[0, 3], [0, 2, 4], [0, 3, 6, 9], [0, 1, 3], [0, 1, 2], [0]]
    with pytest.raises(ValueError, match="start with 6 layers: these are more than the encoder's 4; give fewer"):
        kept_layers(4, 6, with_last=True)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_student_starts_with_the_teachers_layers(tmp_path, family):
    geometry = replace(STUDENT, family=family, layers=4)
    big = make_model(stage_one(geometry=geometry))
    big.export(Mlm(), tmp_path, precision="fp32")
    start = FewerLayers(replace(geometry, layers=2)).beside(str(tmp_path))
    with start.weights(tokenizer=None, labels=LABELS, seed=0) as weights:
        small = Mlm().head(weights).model
    mine, theirs = (
        dict(small.named_parameters()),
        dict(AutoModelForMaskedLM.from_pretrained(tmp_path).named_parameters()),
    )
    for name, parameter in mine.items():
        source = name.replace("layer.1.", "layer.3.").replace("layers.1.", "layers.3.")
        torch.testing.assert_close(parameter, theirs[source], rtol=0, atol=0)
    assert start.parameters(vocabulary=80) == sum(p.numel() for p in small.parameters())


@pytest.mark.usefixtures("alone")
def test_a_recipe_with_a_teacher_makes_a_row(data, tmp_path):
    """Its teacher is another recipe, or the folder of a trained model."""
    flow = small_flow(data, tmp_path)
    geometry = replace(SMALL, family="bert", layers=2)
    big = small_recipe(start=Scratch(geometry))
    half = replace(big, start=FewerLayers(replace(geometry, layers=1)), objectives=TRIPLE, teacher=big)
    one = flow.stages(half, "topics", 0)
    make([one.metrics], flow.execution.root)
    taught = one.stage_one.inputs["teacher"]
    assert taught.fingerprint == flow.stages(big, "topics", 0).stage_one.fingerprint
    facts = [stage.record(flow.execution.root)["facts"] for stage in (one.stage_one, taught)]
    assert facts[0]["parameters"] < facts[1]["parameters"]
    assert facts[0]["history"][0]["general_soft"] > 0

    folder = f"{taught.folder(flow.execution.root)}/model"
    other = replace(half, teacher=Pretrained(folder), tokenizer=folder)
    made = flow.stages(other, "topics", 0)
    make([made.stage_one], flow.execution.root)
    again = made.stage_one.record(flow.execution.root)["facts"]
    first = [each["history"][0]["general_soft"] for each in (again, facts[0])]
    np.testing.assert_allclose(*first, rtol=0.05)


def test_a_start_from_layers_has_the_teachers_sizes_and_a_decoders_layers_are_counted_anew(tmp_path):
    geometry = replace(STUDENT, family="gpt2", layers=4)
    big = make_model(stage_one(geometry=geometry, objectives=(Clm(),)))
    big.encoder.config.use_cache = True  # GPT-2's default, by which a layer's number is its place in a cache
    big.export(Clm(), tmp_path, precision="fp32")
    start = FewerLayers(replace(geometry, layers=2)).beside(str(tmp_path))
    with start.weights(tokenizer=None, labels=LABELS, seed=0) as weights:
        JointModel(weights, (Labels(), Clm())).on("cpu")
    wrong = FewerLayers(replace(geometry, layers=2, width=16)).beside(str(tmp_path))
    with (
        pytest.raises(
            ValueError, match="hidden_size is 16 in its geometry and 32 in the teacher; only layers may differ"
        ),
        wrong.weights(tokenizer=None, labels=LABELS, seed=0),
    ):
        pass


def test_what_cannot_be_is_refused_by_name(teacher, tmp_path):
    big = small_recipe(start=Scratch(replace(SMALL, family="bert")))
    with pytest.raises(ValueError, match=r"teacher None: soft needs one; give teacher=RECIPE or Pretrained\(folder\)"):
        replace(big, objectives=TRIPLE)
    with pytest.raises(ValueError, match="teacher None: start needs one"):
        replace(big, start=FewerLayers(SMALL))
    with pytest.raises(ValueError, match="teacher: stage one does not learn from it; give objectives such as SoftTok"):
        replace(big, teacher=big)
    with pytest.raises(ValueError, match="teacher: must be a recipe with a stage one"):
        replace(big, objectives=TRIPLE, teacher=replace(big, stage_one=None, start=Pretrained("x")))
    with pytest.raises(
        ValueError, match="tokenizer 'trained': the student shares the teacher's tokens; give tokenizer='x'"
    ):
        replace(big, objectives=TRIPLE, teacher=Pretrained("x"))
    with pytest.raises(
        ValueError, match=r"objective soft: needs mlm before it; give objectives=\(Mlm\(times=2\), SoftTokens"
    ):
        replace(big, objectives=(SoftTokens(), Mlm()), teacher=big)
    with pytest.raises(ValueError, match="soft temperature 0: must be above 0"):
        SoftTokens(temperature=0)
    own = settings(teacher, (SoftTokens(), Mlm()))
    with pytest.raises(ValueError, match=r"soft: needs mlm before it; give objectives=\(Mlm\(times=2\), SoftTokens"):
        batch_of(own, "task")
    wide = stage_one(
        geometry=replace(STUDENT, width=16), objectives=(LayersOfTeacher(scores=False), Mlm()), teacher=teacher
    )
    inputs = to_device(batch_of(wide, "task"), "cpu")
    with pytest.raises(ValueError, match=r"the student's size 16 is not the teacher's 32; give .*\(width=32\)"):
        make_model(wide)(*inputs)
    projected = replace(wide, objectives=(LayersOfTeacher(scores=False, width=32), Mlm()))
    assert float(make_model(projected)(*inputs)["layers"].detach()) > 0
    odd = stage_one(geometry=replace(STUDENT, layers=3), objectives=LAYERS, teacher=teacher)
    with pytest.raises(ValueError, match="the teacher's 4 layers are no multiple of the student's 3; change either"):
        make_model(odd)(*inputs)
    albert = stage_one(geometry=replace(STUDENT, family="albert"), objectives=LAYERS, teacher=teacher)
    with pytest.raises(ValueError, match="scores need BERT's layers with equally many heads"):
        make_model(albert)(*inputs)
    modern = stage_one(geometry=replace(STUDENT, family="modernbert"), objectives=LAYERS, teacher=teacher)
    with pytest.raises(ValueError, match="scores need BERT's layers with equally many heads in student and teacher"):
        make_model(modern)(*inputs)
