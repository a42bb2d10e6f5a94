"""The joint model and its losses, against transformers' own models on the same weights and formulas by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForMaskedLM,
    BertForSequenceClassification,
)

from tlm_ray.training.batches import Batch
from tlm_ray.training.blocks import Blocks
from tlm_ray.training.loop import Rank, to_device
from tlm_ray.training.model import JointModel, config_from
from tlm_ray.training.objectives import step_loss
from tlm_ray.training.prediction import predict
from tlm_ray.training.ranks import _export_classifier, _export_mlm
from tlm_ray.training.schedules import Geometry
from tlm_ray.training.tokenizer import train_wordpiece

LABELS = ("alpha", "beta", "gamma")
VOCABULARY, PAD, ROWS, LENGTH = 60, 0, 6, 16
TASK_HEAD = {f"{layer}.{kind}" for layer in ("classifier", "bert.pooler.dense") for kind in ("weight", "bias")}
GEOMETRY = Geometry(layers=2, width=32, heads=2, intermediate=64, positions=32, dropout=0.0)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model():
    return make_model(seed=0)


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(["a passage and its rank, read by an encoder"] * 9, vocabulary=VOCABULARY)


def make_model(seed, dropout=0.0):
    config = config_from(replace(GEOMETRY, dropout=dropout), vocabulary=VOCABULARY, pad_id=PAD, labels=LABELS)
    model = JointModel.from_scratch(config, seed=seed)
    with torch.no_grad():  # far from 0, so that a loss of one part of the weights would show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return model


def make_batch(kind, *, seed=0, masked=True, types=False):
    """A padded batch of random tokens; a fifth of the real ones are targets."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, LENGTH + 1, ROWS)
    attention = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
    tokens = np.where(attention, rng.integers(5, VOCABULARY, (ROWS, LENGTH)), PAD)
    places = np.flatnonzero((rng.random((ROWS, LENGTH)) < 0.2) & (attention == 1)) if masked else None
    return Batch(
        kind=kind,
        tokens=tokens,
        attention=attention,
        types=attention * rng.integers(0, 2, (ROWS, LENGTH)) if types else None,
        masked=places,
        targets=rng.integers(5, VOCABULARY, len(places)) if masked else None,
        labels=rng.integers(0, len(LABELS), ROWS) if kind == "task" else None,
        rows=ROWS,
        masked_total=len(places) if masked else 0,
        tokens_total=int(attention.sum()),
        real_tokens=int(attention.sum()),
    )


def half(batch, rank):
    """One of two ranks' part of a batch: every second row, with the counts of the whole."""
    inside = np.zeros((ROWS, LENGTH), bool)
    targets = np.zeros((ROWS, LENGTH), np.int64)
    inside.ravel()[batch.masked] = True
    targets.ravel()[batch.masked] = batch.targets
    mine = slice(rank, None, 2)
    changed = {"tokens": batch.tokens[mine], "attention": batch.attention[mine]}
    changed |= {"masked": np.flatnonzero(inside[mine]), "targets": targets[mine][inside[mine]]}
    changed |= {"labels": None if batch.labels is None else batch.labels[mine]}
    return Batch(**(vars(batch) | changed))


def reference_losses(model, batch):
    """Mean losses by transformers alone, with the same weights: MLM with labels -100 elsewhere, and classification."""
    inputs, *_ = to_device(batch, "cpu")
    mlm, classifier = BertForMaskedLM(model.config), BertForSequenceClassification(model.config)
    with model.mlm.whole(model.encoder) as whole:
        loaded = mlm.load_state_dict(whole.state_dict(), strict=False)
    assert not loaded.missing_keys and not loaded.unexpected_keys
    classifier.load_state_dict(classifier_of(model))
    losses = []
    if batch.masked is not None:
        labels = torch.full((ROWS, LENGTH), -100)
        labels.view(-1)[torch.from_numpy(batch.masked)] = torch.from_numpy(batch.targets)
        losses.append(mlm(**inputs, labels=labels).loss)
    if batch.labels is not None:
        losses.append(classifier(**inputs, labels=torch.from_numpy(batch.labels)).loss)
    return losses, mlm, classifier


def classifier_of(model):
    """The weights of a joint model's classifier under transformers' names."""
    with model.task.whole(model.encoder) as whole:
        return whole.state_dict(keep_vars=True)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def loss_of(model, batch, *, rho2=1.0, weighting="released", world=1):
    mlm, task = model(*to_device(batch, "cpu"))
    return step_loss(mlm, task, batch, rho2=rho2, weighting=weighting, world=world)


@pytest.mark.parametrize("types", [False, True], ids=["single", "pair"])
@pytest.mark.parametrize("training", [False, True])
def test_task_batch_losses_are_those_of_transformers(model, types, training):
    model.train(training)
    batch = make_batch("task", types=types)
    mlm, task = model(*to_device(batch, "cpu"))
    (expected_mlm, expected_task), *_ = reference_losses(model, batch)
    torch.testing.assert_close(mlm / len(batch.masked), expected_mlm, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(task / ROWS, expected_task, rtol=1e-6, atol=1e-6)


def test_general_batch_loss_is_that_of_transformers(model):
    batch = make_batch("general")
    mlm, task = model(*to_device(batch, "cpu"))
    (expected,), *_ = reference_losses(model, batch)
    torch.testing.assert_close(mlm / len(batch.masked), expected, rtol=1e-6, atol=1e-6)
    assert task.item() == 0


def test_clean_batch_loss_is_classification_alone(model):
    batch = make_batch("task", masked=False)
    mlm, task = model(*to_device(batch, "cpu"))
    (expected,), *_ = reference_losses(model, batch)
    torch.testing.assert_close(task / ROWS, expected, rtol=1e-6, atol=1e-6)
    assert mlm.item() == 0


@pytest.mark.parametrize("rho2", [0.0, 20.0])
def test_gradients_are_those_of_transformers_models_added(model, rho2):
    batch = make_batch("task")
    loss_of(model, batch, rho2=rho2, weighting="paper").backward()
    (mlm_loss, task_loss), mlm, classifier = reference_losses(model, batch)
    (rho2 * mlm_loss).backward()
    task_loss.backward()
    for name, parameter in classifier.named_parameters():
        other = dict(mlm.named_parameters()).get(name)
        expected = parameter.grad + (other.grad if other is not None and other.grad is not None else 0)
        actual = classifier_of(model)[name].grad
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    for name, parameter in mlm.cls.named_parameters():
        if "decoder.weight" not in name:  # tied to the embeddings, whose gradient is checked above
            actual = dict(model.mlm.model.cls.named_parameters())[name].grad
            torch.testing.assert_close(actual, parameter.grad, rtol=1e-5, atol=1e-6)


def test_word_embeddings_are_the_mlm_heads_last_product(model):
    assert model.mlm.last.weight is model.encoder.embeddings.word_embeddings.weight
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters()))


def test_general_batches_leave_the_task_head_a_gradient_of_zero_not_none(model):
    loss_of(model, make_batch("general")).backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == set()
    head = {id(p) for p in model.task.parameters()}
    assert {name for name, p in classifier_of(model).items() if id(p) in head} == TASK_HEAD
    assert all((p.grad == 0).all() == (id(p) in head) for p in model.parameters())


def test_task_batches_give_every_parameter_a_gradient(model):
    loss_of(model, make_batch("task")).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_batch_where_nothing_was_masked_has_a_loss_of_zero(model):
    nothing = {"masked": np.empty(0, np.int64), "targets": np.empty(0, np.int64), "masked_total": 0}
    loss = loss_of(model, Batch(**(vars(make_batch("general")) | nothing)))
    loss.backward()
    assert loss.item() == 0 and all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("rho2", [0.0, 1.0, 20.0, 1000.0])
def test_weightings_are_the_formulas_of_the_released_code_and_of_the_paper(model, rho2):
    batch = make_batch("task")
    (mlm, task), *_ = reference_losses(model, batch)
    released, paper = (loss_of(model, batch, rho2=rho2, weighting=w) for w in ("released", "paper"))
    torch.testing.assert_close(released, (rho2 * mlm + task) / (rho2 + 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(paper, rho2 * mlm + task, rtol=1e-5, atol=1e-6)


def test_the_mlm_weighting_leaves_labels_unseen(model):
    batch = make_batch("task")
    (mlm, _), *_ = reference_losses(model, batch)
    loss = loss_of(model, batch, rho2=3.0, weighting="mlm")
    loss.backward()
    torch.testing.assert_close(loss, mlm, rtol=1e-5, atol=1e-6)
    assert all((p.grad == 0).all() for p in model.task.parameters())


@pytest.mark.parametrize("weighting", ["released", "paper"])
def test_general_batches_count_fully_whatever_rho2_is(model, weighting):
    batch = make_batch("general")
    (expected,), *_ = reference_losses(model, batch)
    for rho2 in (0.0, 20.0):
        torch.testing.assert_close(loss_of(model, batch, rho2=rho2, weighting=weighting), expected)


@pytest.mark.parametrize("kind", ["general", "task"])
def test_two_ranks_average_to_the_whole_batch(model, kind):
    batch, losses, parts = make_batch(kind), [], []
    loss = loss_of(model, batch, rho2=20.0)
    loss.backward()
    whole = gradients(model)
    for rank in range(2):
        model.zero_grad()
        losses.append(loss_of(model, half(batch, rank), rho2=20.0, world=2))
        losses[-1].backward()
        parts.append(gradients(model))
    torch.testing.assert_close(sum(losses) / 2, loss)
    for name, expected in whole.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, expected, rtol=1e-5, atol=1e-7)


def test_random_weights_depend_on_the_seed_alone():
    config = config_from(GEOMETRY, vocabulary=VOCABULARY, pad_id=PAD, labels=LABELS)
    one = JointModel.from_scratch(config, seed=3).state_dict()
    torch.manual_seed(99)
    again, other = (JointModel.from_scratch(config, seed=seed).state_dict() for seed in (3, 4))
    assert one.keys() == again.keys() and all(torch.equal(one[name], again[name]) for name in one)
    drawn = [name for name in one if one[name].is_floating_point() and one[name].ndim > 1]
    assert drawn and all(not torch.equal(one[name], other[name]) for name in drawn)


def test_random_weights_are_drawn_as_berts_are():
    model = JointModel.from_scratch(config_from(GEOMETRY, vocabulary=5000, pad_id=PAD, labels=LABELS), seed=0)
    weight = model.encoder.embeddings.word_embeddings.weight
    assert (weight[PAD] == 0).all() and weight[1:].mean().abs() < 1e-3
    torch.testing.assert_close(weight[1:].std().item(), 0.02, rtol=0.02, atol=0)


def test_stage_one_opens_in_transformers_as_a_masked_language_model(model, tokenizer, tmp_path):
    _export_mlm(model, tokenizer, tmp_path)
    batch = make_batch("general")
    opened = AutoModelForMaskedLM.from_pretrained(tmp_path)
    labels = torch.full((ROWS, LENGTH), -100)
    labels.view(-1)[torch.from_numpy(batch.masked)] = torch.from_numpy(batch.targets)
    (expected,), *_ = reference_losses(model, batch)
    torch.testing.assert_close(opened(**to_device(batch, "cpu")[0], labels=labels).loss, expected)
    assert AutoTokenizer.from_pretrained(tmp_path).get_vocab() == tokenizer.get_vocab()


def test_stage_two_starts_with_stage_ones_encoder_and_a_fresh_head(model, tokenizer, tmp_path):
    _export_mlm(model, tokenizer, tmp_path)
    start = JointModel.from_checkpoint(tmp_path, labels=LABELS, seed=5)
    assert start.mlm is None
    before, after = classifier_of(model), classifier_of(start)
    fresh = {name for name in after if not torch.equal(after[name], before[name])}
    assert fresh == TASK_HEAD
    for name in fresh:  # as BERT draws them
        assert (after[name] == 0).all() if name.endswith("bias") else 0.01 < after[name].std() < 0.03


def test_a_fresh_head_depends_on_the_seed_alone(model, tokenizer, tmp_path):
    _export_mlm(model, tokenizer, tmp_path)
    one, again, other = (
        dict(JointModel.from_checkpoint(tmp_path, labels=LABELS, seed=seed).named_parameters()) for seed in (5, 5, 6)
    )
    assert all(torch.equal(one[name], again[name]) for name in one)
    differ = {name for name in one if not torch.equal(one[name], other[name])}
    assert differ == {"task.model.classifier.weight", "task.model.bert.pooler.dense.weight"}


def test_the_number_of_classes_may_differ_from_stage_ones(model, tokenizer, tmp_path):
    _export_mlm(model, tokenizer, tmp_path)
    start = JointModel.from_checkpoint(tmp_path, labels=("x", "y"), seed=0)
    assert start.task.model.classifier.out_features == 2
    assert start.config.id2label == {0: "x", 1: "y"}


@pytest.mark.parametrize("labels", [LABELS, ("x", "y")], ids=["as many", "other"])
def test_the_head_is_fresh_after_a_classifier_too_unless_it_is_to_be_kept(model, tokenizer, tmp_path, labels):
    _export_classifier(model, tokenizer, tmp_path)
    one, again, other = (classifier_of(JointModel.from_checkpoint(tmp_path, labels=labels, seed=s)) for s in (5, 5, 6))
    before = classifier_of(model)
    assert torch.equal(one["classifier.weight"], again["classifier.weight"])
    for weight in (before["classifier.weight"], other["classifier.weight"]):
        assert weight.shape != one["classifier.weight"].shape or not torch.equal(one["classifier.weight"], weight)
    assert 0.01 < one["classifier.weight"].std() < 0.03 and (one["classifier.bias"] == 0).all()
    assert all(torch.equal(one[name], before[name]) for name in before if not name.startswith("classifier."))
    kept = classifier_of(JointModel.from_checkpoint(tmp_path, labels=LABELS, seed=5, keep_head=True))
    assert all(torch.equal(kept[name], before[name]) for name in before)


def test_a_head_that_shares_a_layer_with_the_mlm_head_keeps_that_layer_but_not_a_classifiers(tokenizer, tmp_path):
    geometry = Geometry(family="modernbert", layers=1, width=32, heads=2, intermediate=64, init_std=0.2)
    config = config_from(geometry, vocabulary=VOCABULARY, pad_id=PAD, labels=LABELS)
    model = JointModel.from_scratch(config, seed=0)
    with torch.no_grad():
        model.mlm.model.head.dense.weight.fill_(0.5)
    _export_mlm(model, tokenizer, tmp_path / "mlm")
    _export_classifier(model, tokenizer, tmp_path / "classifier")
    before = model.task.model
    for source, dense in (("mlm", model.mlm.model.head.dense.weight), ("classifier", before.head.dense.weight)):
        start = JointModel.from_checkpoint(tmp_path / source, labels=LABELS, seed=5).task.model
        assert torch.equal(start.head.dense.weight, dense) == (source == "mlm")
        assert not torch.equal(start.classifier.weight, before.classifier.weight)


def test_weights_come_from_safetensors_only(model, tokenizer, tmp_path):
    _export_mlm(model, tokenizer, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        JointModel.from_checkpoint(tmp_path, labels=LABELS, seed=0)


def test_the_result_opens_in_transformers_alone_with_the_same_logits(model, tokenizer, tmp_path: Path):
    _export_mlm(model, tokenizer, tmp_path / "one")
    trained = JointModel.from_checkpoint(tmp_path / "one", labels=LABELS, seed=0)
    _export_classifier(trained, tokenizer, tmp_path / "two")
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "two").eval()
    encoded = AutoTokenizer.from_pretrained(tmp_path / "two")(
        ["a passage", "its rank, read by"], return_tensors="pt", padding=True
    )
    assert opened.config.id2label == dict(enumerate(LABELS)) and encoded["input_ids"].shape[0] == 2
    with torch.no_grad():
        expected = trained.eval().scores(dict(encoded))
        assert torch.equal(opened(**encoded).logits, expected)


@pytest.mark.parametrize("types", [False, True], ids=["single", "pair"])
def test_predictions_are_transformers_logits_row_by_row(types):
    model, rng = make_model(seed=0, dropout=0.5), np.random.default_rng(0)
    lengths = rng.integers(3, LENGTH + 1, 150)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(5, VOCABULARY, offsets[-1]).astype(np.int32)
    segments = rng.integers(0, 2, offsets[-1]).astype(np.uint8) if types else None
    model.train()
    logits = predict(model, Blocks(tokens, offsets, types=segments), pad_id=PAD, rank=Rank())
    assert logits.shape == (150, len(LABELS)) and model.training
    model.eval()
    for i in range(0, 150, 7):
        part = slice(offsets[i], offsets[i + 1])
        inputs = {"input_ids": torch.from_numpy(tokens[part].astype(np.int64))[None]}
        inputs |= {"token_type_ids": torch.from_numpy(segments[part].astype(np.int64))[None]} if types else {}
        with torch.no_grad(), model.task.whole(model.encoder) as whole:
            expected = whole.eval()(**inputs).logits[0].numpy()
        np.testing.assert_allclose(logits[i], expected, rtol=1e-5, atol=1e-6)
