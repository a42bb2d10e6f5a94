"""The training loop, against a plain torch and transformers loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from trainings import (
    LOSSES,
    RHO2,
    ROWS,
    SCHEDULE,
    assert_near,
    assert_near_losses,
    ignore,
    losses_of,
    make_batches,
    make_model,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_whole,
    stage_one,
    stage_two,
)
from transformers import BertForMaskedLM, BertForSequenceClassification, get_linear_schedule_with_warmup

from tlm_ray.training.loop.checkpoints import snapshot
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.tokens.masking import Masking


def test_biases_and_layer_norms_are_not_decayed():
    trainer = make_trainer()
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    decayed, kept = ({names[id(p)] for p in group["params"]} for group in trainer.optimizer.param_groups)
    assert [group["weight_decay"] for group in trainer.optimizer.param_groups] == [0.1, 0.0]
    # the released code's rule, word for word
    assert kept == {n for n in names.values() if any(part in n for part in ("bias", "LayerNorm.weight"))}
    assert decayed | kept == set(names.values()) and not decayed & kept


def reference_run(batches, schedule, *, start, steps):
    """The released loop in plain torch and transformers: losses a step, and the models."""
    mlm, classifier = BertForMaskedLM(start.config), BertForSequenceClassification(start.config)
    with start.heads["labels"].whole(start.encoder) as whole:
        classifier.load_state_dict(whole.state_dict())
    mlm.cls.load_state_dict(start.heads["mlm"].model.cls.state_dict())
    mlm.bert = classifier.bert
    mlm.tie_weights()
    named = dict(mlm.named_parameters()) | dict(classifier.named_parameters())
    plain = [p for name, p in named.items() if "bias" in name or "LayerNorm.weight" in name]
    decayed = [p for name, p in named.items() if not ("bias" in name or "LayerNorm.weight" in name)]
    groups = [{"params": decayed, "weight_decay": schedule.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.999), eps=1e-6, fused=False)
    rates = get_linear_schedule_with_warmup(optimizer, schedule.warmup_steps, schedule.steps)
    losses = []
    for step in range(steps):
        batch = batches.batch(step)
        losses.append(reference_losses(batch, mlm, classifier))
        tokens = schedule.batch_rows * np.diff(ROWS[batch.stream].offsets).mean()  # of a batch on average
        alike = batch.attention.sum() / tokens  # each token counts alike
        if batch.stream == "general":
            total = alike * losses[-1]["general_mlm"]
        else:
            total = (RHO2 * alike * losses[-1]["task_mlm"] + losses[-1]["task"]) / (RHO2 + 1)
        head = [p for n, p in classifier.named_parameters() if "pooler" in n or n.startswith("classifier")]
        (total + sum(p.sum() for p in head) * 0).backward()  # the released code ties idle heads in this way
        optimizer.step()
        rates.step()
        optimizer.zero_grad(set_to_none=False)
    return [{name: value.item() for name, value in loss.items()} for loss in losses], classifier


def reference_losses(batch, mlm, classifier):
    inputs, predictions = to_device(batch, "cpu")
    wanted = torch.full(inputs["input_ids"].shape, -100)
    wanted.view(-1)[predictions["mlm"].places] = predictions["mlm"].values
    loss = mlm(**inputs, labels=wanted).loss
    if "labels" not in predictions:
        return {"general_mlm": loss}
    return {"task_mlm": loss, "task": classifier(**inputs, labels=predictions["labels"].values).loss}


def test_losses_and_weights_are_those_of_a_plain_loop():
    trainer = run_whole()
    batches, start = make_batches(stage_one()), make_model(stage_one())
    expected, classifier = reference_run(batches, SCHEDULE, start=start, steps=SCHEDULE.steps)
    for entry, losses in zip(trainer.progress.history, expected, strict=True):
        assert losses_of(entry) == pytest.approx(losses, rel=2e-5)
    with trainer.model.heads["labels"].whole(trainer.model.encoder) as whole:
        for name, weight in classifier.state_dict().items():
            torch.testing.assert_close(whole.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("scores", "best"),
    [([10.0, 30.0, 20.0], 1), ([30.0, 30.0, 30.0], 0), ([0.0, 0.0, 0.0], 0), ([10.0, 20.0, 30.0], 2),
     ([-40.0, -20.0, -30.0], 1), ([-600.0, -300.0, -400.0], 1), ([float("nan"), 5.0, 4.0], 1)],
)  # fmt: skip
def test_keep_best_ends_with_the_weights_of_the_best_score_ties_the_earlier(scores, best):
    seen = []

    def evaluate(model):
        seen.append(snapshot(model))
        return {"dev": scores[len(seen) - 1]}

    trainer = make_trainer(evaluate=evaluate, keep_best=True)
    progress = trainer.run(ignore)
    final = snapshot(trainer.model)
    assert progress.best_step == 4 * (best + 1) and progress.best_score == scores[best]
    assert len(seen) == 3 and all(torch.equal(final[name], seen[best][name]) for name in final)


def test_an_evaluations_losses_are_ticked_with_its_score():
    ticked = []
    trainer = make_trainer(evaluate=lambda model: {"dev": 1.0})
    trainer.run(ignore, lambda progress: ticked.append(dict(progress.history[-1])))
    assert [entry["step"] for entry in ticked if "dev" in entry] == [4, 8, 12]


def test_a_step_without_predictions_has_no_loss():
    masking = Masking(share=1e-12)
    history = run_whole(stage_one(objectives=(Mlm(masking),), schedule=replace(SCHEDULE, log_every=1))).progress.history
    assert "task" in history[-1] and not any(name.endswith("mlm") for entry in history for name in entry)


def test_without_keep_best_the_last_weights_stay():
    scores = iter([3.0, 2.0, 1.0])
    scored = run_whole(evaluate=lambda model: {"dev": next(scores)})
    whole = run_whole()
    assert all(torch.equal(w, snapshot(scored.model)[name]) for name, w in snapshot(whole.model).items())


def mean_of(snapshots, name):
    kept = torch.stack([weights[name] for weights in snapshots])
    return kept.double().mean(0).to(kept.dtype)


@pytest.mark.parametrize(("averaged", "first"), [(0.5, 6), (1.0, 0), (0.1, 11)])
def test_the_result_has_the_mean_weights_of_the_last_steps(averaged, first):
    each = []
    trainer = make_trainer()
    for step in range(SCHEDULE.steps):
        trainer.step(step)
        each.append(snapshot(trainer.model))
    seen = []
    settings = stage_one(schedule=replace(SCHEDULE, averaged=averaged))
    found = make_trainer(settings, evaluate=lambda model: seen.append(snapshot(model)) or {"dev": 0.0})
    found.run(ignore)
    for name, weight in snapshot(found.model).items():
        torch.testing.assert_close(
            weight, torch.stack([w[name] for w in each[first:]]).double().mean(0).to(weight.dtype), rtol=1e-5, atol=1e-7
        )
        assert torch.equal(weight, seen[-1][name]), "what is scored last is what is kept"
    if averaged == 0.5:  # steps 4, 8, 12 are scored: the first before any mean, the second after two of it
        assert all(torch.equal(seen[0][name], each[3][name]) for name in each[3])
        name = next(iter(each[7]))
        torch.testing.assert_close(seen[1][name], (each[6][name] + each[7][name]) / 2, rtol=1e-5, atol=1e-7)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_steps():
    def break_weights(progress):
        if progress.step == 4:
            trainer.model.encoder.embeddings.LayerNorm.weight.data[0] = float("nan")

    saved = []
    trainer = make_trainer(stage_one(schedule=replace(SCHEDULE, log_every=2, evaluate_every=6)))
    with pytest.raises(FloatingPointError, match="steps 5 to 6: a loss is not finite; lower learning_rate"):
        trainer.run(saved.append, break_weights)
    assert not saved, "broken weights must not become a checkpoint"


def test_stage_two_trains_on_clean_task_batches_alone():
    settings = stage_two(schedule=replace(SCHEDULE, steps=60, evaluate_every=60))
    assert all(batch.targets.keys() == {"labels"} for batch in map(make_batches(settings).batch, range(9)))
    history = run_whole(settings).progress.history
    assert all(set(LOSSES) & entry.keys() == {"task"} for entry in history)
    assert history[-1]["task"] < 0.2 < 0.9 < history[0]["task"]  # 30 rows are learned by heart; ln 3 is 1.1


def test_bf16_stays_close_to_fp32():
    whole, half = run_whole(), run_whole(worker=Worker(precision="bf16"))
    assert_near_losses(half.progress.history, whole, rel=0.02)
    assert all(p.dtype == torch.float32 for p in half.model.parameters())


@pytest.mark.parametrize("micro_rows", [1, 2, 3, 7])
def test_rows_a_few_at_a_time_train_the_same_model(micro_rows):
    whole, parts = run_whole(), run_whole(worker=Worker(micro_rows=micro_rows))
    assert parts.progress.tokens == whole.progress.tokens
    assert all(p["padded"] <= w["padded"] for p, w in zip(parts.progress.history, whole.progress.history, strict=True))
    assert_near(parts.progress.history, snapshot(parts.model), whole)


def test_long_rows_are_processed_a_few_at_a_time_on_cpus(monkeypatch):
    assert [Worker().rows_at_once(32, 32 * width) for width in (128, 136, 512, 8192)] == [32, 30, 8, 1]
    others = (Worker(micro_rows=20), Worker(sharded=True, world=2), Worker(device="cuda:1"))
    assert [worker.rows_at_once(32, 32 * 512) for worker in others] == [20, 0, 0]
    batches = [make_batches(stage_one()).batch(step) for step in range(SCHEDULE.steps)]
    whole, widest = run_whole(), max(batch.tokens.shape[1] for batch in batches)
    monkeypatch.setattr("tlm_ray.training.loop.worker.TOKENS_AT_ONCE", 2 * widest)
    parts, told = run_whole(), run_whole(worker=Worker(micro_rows=SCHEDULE.batch_rows))
    assert told.progress.flops == whole.progress.flops != parts.progress.flops
    assert_near(parts.progress.history, snapshot(parts.model), whole)
    asked = []
    monkeypatch.setattr(Worker, "rows_at_once", lambda self, rows, tokens: asked.append((rows, tokens)) or 0)
    run_whole(worker=Worker(packed=True))
    assert asked == [(len(batch.tokens), batch.real_tokens) for batch in batches], "packed rows have no padding"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.parametrize("micro_rows", [0, 3])
def test_rows_one_after_another_train_the_same_model(micro_rows):
    whole, packed = run_whole(), run_whole(worker=Worker(packed=True, micro_rows=micro_rows))
    assert packed.progress.tokens == whole.progress.tokens
    assert {entry["padded"] for entry in packed.progress.history} == {0.0}
    assert_near(packed.progress.history, snapshot(packed.model), whole)


@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_added_up_over_parts_have_the_losses_of_whole_steps(parts):
    fifty = stage_one(schedule=replace(SCHEDULE, steps=50, evaluate_every=50))
    micro_rows = SCHEDULE.batch_rows // parts
    assert len(list(make_batches(fifty).batch(0).parts(micro_rows))) == parts
    whole, split = run_whole(fifty), run_whole(fifty, Worker(micro_rows=micro_rows))
    assert_near_losses(split.progress.history, whole)
