"""Where weights come from (random, stage one, other encoders) and where they go: transformers opens all."""

import pytest
import torch
from joints import (
    LABELS,
    PAD,
    TASK_HEAD,
    VOCABULARY,
    classifier_of,
    make_batch,
    make_model,
    reference_losses,
    scratch_model,
    wanted_of,
)
from trainings import one_thread  # noqa: F401 - a fixture
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm
from tlm_ray.training.tokens.tokenizer import train_wordpiece


@pytest.fixture
def model():
    return make_model(seed=0)


def trained_model(folder, *, labels=LABELS, seed=0, keep_head=False):
    """The model of stage two: a trained encoder with a task head."""
    return JointModel(TrainedWeights(folder, labels=labels, seed=seed, keep_head=keep_head), (Labels(),))


def test_random_weights_depend_on_the_seed_alone():
    one = scratch_model(seed=3).state_dict()
    torch.manual_seed(99)
    again, other = (scratch_model(seed=seed).state_dict() for seed in (3, 4))
    assert one.keys() == again.keys() and all(torch.equal(one[name], again[name]) for name in one)
    drawn = [name for name in one if one[name].is_floating_point() and one[name].ndim > 1]
    assert drawn and all(not torch.equal(one[name], other[name]) for name in drawn)


def test_random_weights_are_drawn_as_berts_are():
    model = scratch_model(seed=0, vocabulary=5000)
    weight = model.encoder.embeddings.word_embeddings.weight
    assert (weight[PAD] == 0).all() and weight[1:].mean().abs() < 1e-3
    torch.testing.assert_close(weight[1:].std().item(), 0.02, rtol=0.02, atol=0)


def test_stage_one_opens_in_transformers_as_a_masked_language_model(model, tmp_path):
    model.export(Mlm(), tmp_path, precision="fp32")
    batch = make_batch("general")
    opened = AutoModelForMaskedLM.from_pretrained(tmp_path)
    found = opened(**to_device(batch, "cpu")[0], labels=wanted_of(batch)).loss
    torch.testing.assert_close(found, reference_losses(model, batch)[0]["mlm"])
    assert opened.config.trained_precision == "fp32"


def test_stage_two_starts_with_stage_ones_encoder_and_a_fresh_head(model, tmp_path):
    model.export(Mlm(), tmp_path, precision="fp32")
    start = trained_model(tmp_path, labels=LABELS, seed=5)
    assert list(start.heads) == ["labels"]
    before, after = classifier_of(model), classifier_of(start)
    fresh = {name for name in after if not torch.equal(after[name], before[name])}
    assert fresh == TASK_HEAD
    for name in fresh:  # as BERT draws them
        assert (after[name] == 0).all() if name.endswith("bias") else 0.01 < after[name].std() < 0.03


def test_a_fresh_head_depends_on_the_seed_alone(model, tmp_path):
    model.export(Mlm(), tmp_path, precision="fp32")
    one, again, other = (
        dict(trained_model(tmp_path, labels=LABELS, seed=seed).named_parameters()) for seed in (5, 5, 6)
    )
    assert all(torch.equal(one[name], again[name]) for name in one)
    differ = {name for name in one if not torch.equal(one[name], other[name])}
    assert differ == {"heads.labels.model.classifier.weight", "heads.labels.model.bert.pooler.dense.weight"}


def test_the_number_of_classes_may_differ_from_stage_ones(model, tmp_path):
    model.export(Mlm(), tmp_path, precision="fp32")
    start = trained_model(tmp_path, labels=("x", "y"), seed=0)
    assert start.heads["labels"].model.classifier.out_features == 2
    assert start.config.id2label == {0: "x", 1: "y"}


@pytest.mark.parametrize("labels", [LABELS, ("x", "y")], ids=["as many", "other"])
def test_the_head_is_fresh_after_a_classifier_too_unless_it_is_to_be_kept(model, tmp_path, labels):
    model.export(Labels(), tmp_path, precision="fp32")
    one, again, other = (classifier_of(trained_model(tmp_path, labels=labels, seed=s)) for s in (5, 5, 6))
    before = classifier_of(model)
    assert torch.equal(one["classifier.weight"], again["classifier.weight"])
    for weight in (before["classifier.weight"], other["classifier.weight"]):
        assert weight.shape != one["classifier.weight"].shape or not torch.equal(one["classifier.weight"], weight)
    assert 0.01 < one["classifier.weight"].std() < 0.03 and (one["classifier.bias"] == 0).all()
    assert all(torch.equal(one[name], before[name]) for name in before if not name.startswith("classifier."))
    kept = classifier_of(trained_model(tmp_path, labels=LABELS, seed=5, keep_head=True))
    assert all(torch.equal(kept[name], before[name]) for name in before)


def test_a_head_that_shares_a_layer_with_the_mlm_head_keeps_that_layer_but_not_a_classifiers(tmp_path):
    geometry = Geometry(family="modernbert", layers=1, width=32, heads=2, intermediate=64, init_std=0.2)
    model = scratch_model(seed=0, geometry=geometry)
    mlm, classifier = (model.heads[name].model for name in ("mlm", "labels"))
    with torch.no_grad():
        mlm.head.dense.weight.fill_(0.5)
    model.export(Mlm(), tmp_path / "mlm", precision="fp32")
    model.export(Labels(), tmp_path / "classifier", precision="fp32")
    for source, dense in (("mlm", mlm.head.dense.weight), ("classifier", classifier.head.dense.weight)):
        start = trained_model(tmp_path / source, labels=LABELS, seed=5).heads["labels"].model
        assert torch.equal(start.head.dense.weight, dense) == (source == "mlm")
        assert not torch.equal(start.classifier.weight, classifier.classifier.weight)


def test_weights_come_from_safetensors_only(model, tmp_path):
    model.export(Mlm(), tmp_path, precision="fp32")
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        trained_model(tmp_path, labels=LABELS, seed=0)


def test_the_result_opens_in_transformers_alone_with_the_same_logits(model, tmp_path):
    model.export(Mlm(), tmp_path / "one", precision="fp32")
    trained = trained_model(tmp_path / "one", labels=LABELS, seed=0)
    trained.export(Labels(), tmp_path / "two", precision="fp32")
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "two").eval()
    tokenizer = train_wordpiece(["a passage and its rank, read by an encoder"] * 9, vocabulary=VOCABULARY)
    encoded = tokenizer(["a passage", "its rank, read by"], return_tensors="pt", padding=True)
    assert opened.config.id2label == dict(enumerate(LABELS)) and encoded["input_ids"].shape[0] == 2
    with torch.no_grad():
        expected = trained.eval().scores(dict(encoded))
        assert torch.equal(opened(**encoded).logits, expected)
