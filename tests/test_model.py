"""The joint model and its losses, against transformers' own models on the same weights and formulas by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from joints import (
    LABELS,
    LENGTH,
    PAD,
    ROWS,
    TASK_HEAD,
    VOCABULARY,
    classifier_of,
    half,
    make_batch,
    make_model,
    reference_losses,
)
from trainings import one_thread  # noqa: F401 - a fixture

from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Labels, Loss, Mlm, Targets, step_loss
from tlm_ray.training.scoring.prediction import predict
from tlm_ray.training.tokens.blocks import Blocks


@pytest.fixture
def model():
    return make_model(seed=0)


def sums_of(model, batch):
    return model(*to_device(batch, "cpu"))


def loss_of(model, batch, *, world=1):
    options = {"token_share": batch.token_share, "world": world}
    return step_loss(sums_of(model, batch), batch.targets, batch.loss, **options)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("types", [False, True], ids=["single", "pair"])
@pytest.mark.parametrize("training", [False, True])
def test_task_batch_losses_are_those_of_transformers(model, types, training):
    model.train(training)
    batch = make_batch("task", types=types)
    sums, (expected, *_) = sums_of(model, batch), reference_losses(model, batch)
    assert sums.keys() == expected.keys() == {"mlm", "labels"}
    torch.testing.assert_close(sums["mlm"] / batch.targets["mlm"].total, expected["mlm"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums["labels"] / ROWS, expected["labels"], rtol=1e-6, atol=1e-6)


def test_general_batch_loss_is_that_of_transformers(model):
    batch = make_batch("general")
    sums, (expected, *_) = sums_of(model, batch), reference_losses(model, batch)
    assert sums.keys() == expected.keys() == {"mlm"}
    torch.testing.assert_close(sums["mlm"] / batch.targets["mlm"].total, expected["mlm"], rtol=1e-6, atol=1e-6)


def test_clean_batch_loss_is_classification_alone(model):
    batch = make_batch("task", masked=False)
    sums, (expected, *_) = sums_of(model, batch), reference_losses(model, batch)
    assert sums.keys() == expected.keys() == {"labels"}
    torch.testing.assert_close(sums["labels"] / ROWS, expected["labels"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rho2", [0.0, 20.0])
def test_gradients_are_those_of_transformers_models_added(model, rho2):
    batch = make_batch("task", rho2=rho2, weighting="paper")
    loss_of(model, batch).backward()
    expected, mlm, classifier = reference_losses(model, batch)
    (rho2 * expected["mlm"]).backward()
    expected["labels"].backward()
    for name, parameter in classifier.named_parameters():
        other = dict(mlm.named_parameters()).get(name)
        expected = parameter.grad + (other.grad if other is not None and other.grad is not None else 0)
        actual = classifier_of(model)[name].grad
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    for name, parameter in mlm.cls.named_parameters():
        if "decoder.weight" not in name:  # tied to the embeddings, whose gradient is checked above
            actual = dict(model.heads["mlm"].model.cls.named_parameters())[name].grad
            torch.testing.assert_close(actual, parameter.grad, rtol=1e-5, atol=1e-6)


def test_word_embeddings_are_the_mlm_heads_last_product(model):
    assert model.heads["mlm"].last.weight is model.encoder.embeddings.word_embeddings.weight
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters()))


def test_general_batches_leave_the_task_head_a_gradient_of_zero_not_none(model):
    loss_of(model, make_batch("general")).backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == set()
    head = {id(p) for p in model.heads["labels"].parameters()}
    assert {name for name, p in classifier_of(model).items() if id(p) in head} == TASK_HEAD
    assert all((p.grad == 0).all() == (id(p) in head) for p in model.parameters())


def test_task_batches_give_every_parameter_a_gradient(model):
    loss_of(model, make_batch("task")).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_batch_where_nothing_was_masked_has_a_loss_of_zero(model):
    batch = make_batch("general")
    nothing = Targets(batch.tokens, np.zeros((ROWS, LENGTH), bool), 0)
    loss = loss_of(model, replace(batch, targets={"mlm": nothing}))
    loss.backward()
    assert loss.item() == 0 and all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("rho2", [0.0, 1.0, 20.0, 1000.0])
def test_weightings_are_the_formulas_of_the_released_code_and_of_the_paper(model, rho2):
    released, paper = (loss_of(model, make_batch("task", rho2=rho2, weighting=w)) for w in ("released", "paper"))
    expected, *_ = reference_losses(model, make_batch("task"))
    mlm, task = expected["mlm"], expected["labels"]
    torch.testing.assert_close(released, (rho2 * mlm + task) / (rho2 + 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(paper, rho2 * mlm + task, rtol=1e-5, atol=1e-6)


def test_the_mlm_weighting_leaves_labels_unseen(model):
    batch = make_batch("task", rho2=3.0, weighting="mlm")
    assert batch.loss.objectives == (Mlm(),)
    unlabelled = replace(batch, targets={"mlm": batch.targets["mlm"]})  # what the objectives of this loss prepare
    loss = loss_of(model, unlabelled)
    loss.backward()
    torch.testing.assert_close(loss, reference_losses(model, batch)[0]["mlm"], rtol=1e-5, atol=1e-6)
    assert all((p.grad == 0).all() for p in model.heads["labels"].parameters())


def test_general_batches_count_fully(model):
    batch = make_batch("general", rho2=20.0)
    torch.testing.assert_close(loss_of(model, batch), reference_losses(model, batch)[0]["mlm"])


def test_a_loss_is_its_objectives_means_weighted_added_and_divided():
    loss = Loss(((Mlm(), 3.0), (Labels(), 5.0)), divisor=2.0)
    sums = {"mlm": torch.tensor(8.0), "labels": torch.tensor(6.0)}
    values = np.zeros((3, 2))
    targets = {"mlm": Targets(values, values == 0, 4), "labels": Targets(values[:, 0], None, 3)}
    assert step_loss(sums, targets, loss, token_share=1.0, world=1) == (3 * 2 + 5 * 2) / 2
    assert step_loss(sums, targets, loss, token_share=2.0, world=1) == (3 * 2 * 2 + 5 * 2) / 2


@pytest.mark.parametrize("stream", ["general", "task"])
def test_two_workers_average_to_the_whole_batch(model, stream):
    batch, losses, parts = make_batch(stream, rho2=20.0), [], []
    loss = loss_of(model, batch)
    loss.backward()
    whole = gradients(model)
    for rank in range(2):
        model.zero_grad()
        losses.append(loss_of(model, half(batch, rank), world=2))
        losses[-1].backward()
        parts.append(gradients(model))
    torch.testing.assert_close(sum(losses) / 2, loss)
    for name, expected in whole.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("types", [False, True], ids=["single", "pair"])
def test_predictions_are_transformers_logits_row_by_row(types):
    model, rng = make_model(seed=0, dropout=0.5), np.random.default_rng(0)
    lengths = rng.integers(3, LENGTH + 1, 150)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(5, VOCABULARY, offsets[-1]).astype(np.int32)
    segments = rng.integers(0, 2, offsets[-1]).astype(np.uint8) if types else None
    model.train()
    logits = predict(model, Blocks(tokens, offsets, types=segments), pad_id=PAD, worker=Worker())
    assert logits.shape == (150, len(LABELS)) and model.training
    model.eval()
    for i in range(0, 150, 7):
        part = slice(offsets[i], offsets[i + 1])
        inputs = {"input_ids": torch.from_numpy(tokens[part].astype(np.int64))[None]}
        inputs |= {"token_type_ids": torch.from_numpy(segments[part].astype(np.int64))[None]} if types else {}
        with torch.no_grad(), model.heads["labels"].whole(model.encoder) as whole:
            expected = whole.eval()(**inputs).logits[0].numpy()
        np.testing.assert_allclose(logits[i], expected, rtol=1e-5, atol=1e-6)
