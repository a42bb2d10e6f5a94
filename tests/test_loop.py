"""The training loop, against a plain torch and transformers loop, and against itself interrupted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForMaskedLM, BertForSequenceClassification, get_linear_schedule_with_warmup

from tlm_ray.training.batches import Interleave
from tlm_ray.training.blocks import Blocks
from tlm_ray.training.checkpoints import save_checkpoint, snapshot
from tlm_ray.training.loop import Rank, Training, to_device
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import JointModel, config_from
from tlm_ray.training.schedules import LOSSES, Geometry, Schedule

VOCABULARY, LABELS, RHO2 = 80, ("a", "b", "c"), 20.0
GEOMETRY = Geometry(layers=1, width=32, heads=2, intermediate=64, positions=32, dropout=0.0)
SCHEDULE = Schedule(
    steps=12, batch_rows=8, learning_rate=5e-3, warmup_steps=3, weight_decay=0.1, evaluate_every=4, log_every=1
)  # fmt: skip
TIMED = {"tokens_per_s", "waiting", "utilisation"}  # what a history says about this machine, not about the run


class Interrupted(Exception):
    """The machine went away."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_blocks(rows, *, seed, labels):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, 24, rows)
    tokens = rng.integers(5, VOCABULARY, lengths.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Blocks(tokens, offsets, labels=rng.integers(0, len(LABELS), rows) if labels else None)


def make_batches(*, rho1=2, masked=True, seed=0, rank=0, world=1):
    return Interleave(
        general=make_blocks(100, seed=0, labels=False),
        task=make_blocks(30, seed=1, labels=True),
        rho1=rho1,
        batch_rows=SCHEDULE.batch_rows,
        seed=seed,
        masking=Masking(mask_id=4, vocabulary=VOCABULARY, special_ids=(0, 1, 2, 3, 4)) if masked else None,
        pad_id=0,
        rank=rank,
        world=world,
    )


def make_training(*, schedule=SCHEDULE, dropout=0.0, batches=None, rank=None, **options):
    geometry = replace(GEOMETRY, dropout=dropout)
    config = config_from(geometry, vocabulary=VOCABULARY, pad_id=0, labels=LABELS)
    model = JointModel.from_scratch(config, seed=0)
    options = {"rho2": RHO2} | options
    return Training(model, batches or make_batches(), schedule, rank or Rank(), **options)


def ignore(progress, metrics, take):
    """A report that keeps nothing."""


def keep_in(folder: Path):
    """A report that keeps the newest checkpoint."""
    return lambda progress, metrics, take: take and save_checkpoint(str(folder), take())


def untimed(history):
    return [{name: value for name, value in entry.items() if name not in TIMED} for entry in history]


def losses_of(entry):
    return {name: entry[name] for name in LOSSES if name in entry}


def run_whole(**options):
    training = make_training(**options)
    training.run(ignore)
    return training


def run_interrupted(folder: Path, stops, **options):
    """Run until each of `stops`, then as a new process would: from the last checkpoint, if there is one."""

    def tick(progress):
        if progress.step in waiting:
            waiting.remove(progress.step)
            raise Interrupted

    waiting = list(stops)
    while True:
        training = make_training(**options)
        if (folder / "state.json").exists():
            training.resume(str(folder))
        try:
            training.run(keep_in(folder), tick)
        except Interrupted:
            continue
        assert not waiting
        return training


def assert_same_run(one, other):
    left, right = snapshot(one.model), snapshot(other.model)
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    moments = [t.optimizer.state_dict()["state"] for t in (one, other)]
    for place, entries in moments[0].items():
        assert all(torch.equal(value, moments[1][place][name]) for name, value in entries.items())
    assert untimed(one.progress.history) == untimed(other.progress.history)
    for name in ("step", "tokens", "flops", "best_step", "best_score"):
        assert getattr(one.progress, name) == getattr(other.progress, name)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(steps=st.integers(1, 200), share=st.floats(0, 1), rate=st.floats(1e-6, 1))
def test_learning_rate_is_transformers_linear_schedule_with_warmup(steps, share, rate):
    schedule = replace(SCHEDULE, steps=steps, warmup_steps=int(share * steps), learning_rate=rate)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    reference = get_linear_schedule_with_warmup(optimizer, schedule.warmup_steps, steps)
    for step in range(steps):
        assert schedule.rate(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12, abs=0)
        optimizer.step()
        reference.step()


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch_rows": 0}, {"evaluate_every": 0}, {"warmup_steps": 13}, {"warmup_steps": -1}]
)
def test_a_schedule_that_cannot_be_names_the_number(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} {next(iter(wrong.values()))}: must"):
        replace(SCHEDULE, **wrong)


def test_biases_and_layer_norms_are_not_decayed():
    training = make_training()
    names = {id(p): name for name, p in training.model.named_parameters()}
    decayed, kept = ({names[id(p)] for p in group["params"]} for group in training.optimizer.param_groups)
    assert [group["weight_decay"] for group in training.optimizer.param_groups] == [0.1, 0.0]
    # the released code's rule, word for word
    assert kept == {n for n in names.values() if any(part in n for part in ("bias", "LayerNorm.weight"))}
    assert decayed | kept == set(names.values()) and not decayed & kept


def reference_run(batches, schedule, *, start, steps):
    """The released loop in plain torch and transformers: losses a step, and the models."""
    mlm, classifier = BertForMaskedLM(start.config), BertForSequenceClassification(start.config)
    with start.task.whole(start.encoder) as whole:
        classifier.load_state_dict(whole.state_dict())
    mlm.cls.load_state_dict(start.mlm.model.cls.state_dict())
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
        losses.append(reference_losses(batches.batch(step), mlm, classifier))
        total = losses[-1].get("general_mlm")
        if total is None:
            total = (RHO2 * losses[-1]["task_mlm"] + losses[-1]["task"]) / (RHO2 + 1)
        head = [p for n, p in classifier.named_parameters() if "pooler" in n or n.startswith("classifier")]
        (total + sum(p.sum() for p in head) * 0).backward()  # the released code ties idle heads in this way
        optimizer.step()
        rates.step()
        optimizer.zero_grad(set_to_none=False)
    return [{name: value.item() for name, value in loss.items()} for loss in losses], classifier


def reference_losses(batch, mlm, classifier):
    inputs, masked, targets, labels = to_device(batch, "cpu")
    wanted = torch.full(inputs["input_ids"].shape, -100)
    wanted.view(-1)[masked] = targets
    loss = mlm(**inputs, labels=wanted).loss
    if labels is None:
        return {"general_mlm": loss}
    return {"task_mlm": loss, "task": classifier(**inputs, labels=labels).loss}


def test_losses_and_weights_are_those_of_a_plain_loop():
    training = make_training()
    start = make_training().model
    training.run(ignore)
    expected, classifier = reference_run(make_batches(), SCHEDULE, start=start, steps=SCHEDULE.steps)
    for entry, losses in zip(training.progress.history, expected, strict=True):
        assert losses_of(entry) == pytest.approx(losses, rel=2e-5)
    with training.model.task.whole(training.model.encoder) as whole:
        for name, weight in classifier.state_dict().items():
            torch.testing.assert_close(whole.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_an_interrupted_run_is_the_whole_run_bit_for_bit(tmp_path, seed):
    stops = np.random.default_rng(seed).integers(1, SCHEDULE.steps, 3).tolist()
    whole = run_whole(dropout=0.1)
    assert_same_run(whole, run_interrupted(tmp_path, stops, dropout=0.1))


def test_a_run_goes_on_from_any_of_20_steps_bit_for_bit(tmp_path):
    schedule = replace(SCHEDULE, steps=40, evaluate_every=1)
    steps = np.random.default_rng(0).choice(np.arange(1, schedule.steps), 20, replace=False)

    def report(progress, metrics, take):
        if progress.step in steps:
            save_checkpoint(f"{tmp_path}/{progress.step}", take())

    whole = make_training(schedule=schedule, dropout=0.1)
    whole.run(report)
    for step in steps:
        training = make_training(schedule=schedule, dropout=0.1)
        training.resume(f"{tmp_path}/{step}")
        assert training.progress.step == step
        training.run(ignore)
        assert_same_run(whole, training)


def test_an_interrupted_run_keeps_the_best_weights_of_before(tmp_path):
    scores = {4: 30.0, 8: 50.0, 12: 40.0}
    options = {"keep_best": True, "dropout": 0.1}

    def scored():
        training = make_training(evaluate=lambda model: scores[training.progress.step], **options)
        return training

    whole, first, second = scored(), scored(), scored()
    whole.run(ignore)
    with pytest.raises(Interrupted):
        first.run(keep_in(tmp_path), tick=lambda p: interrupt_at(p, 10))
    second.resume(str(tmp_path))
    second.run(ignore)
    assert second.progress.best_step == 8
    assert_same_run(whole, second)


def interrupt_at(progress, step):
    if progress.step == step:
        raise Interrupted


@pytest.mark.parametrize(
    ("scores", "best"),
    [([10.0, 30.0, 20.0], 1), ([30.0, 30.0, 30.0], 0), ([0.0, 0.0, 0.0], 0), ([10.0, 20.0, 30.0], 2),
     ([-40.0, -20.0, -30.0], 1), ([float("nan"), 5.0, 4.0], 1)],
)  # fmt: skip
def test_keep_best_ends_with_the_weights_of_the_best_score_ties_the_earlier(scores, best):
    seen = []

    def evaluate(model):
        seen.append(snapshot(model))
        return scores[len(seen) - 1]

    training = make_training(evaluate=evaluate, keep_best=True)
    progress = training.run(ignore)
    final = snapshot(training.model)
    assert progress.best_step == 4 * (best + 1) and progress.best_score == scores[best]
    assert len(seen) == 3 and all(torch.equal(final[name], seen[best][name]) for name in final)


def test_without_keep_best_the_last_weights_stay():
    scores = iter([3.0, 2.0, 1.0])
    scored = make_training(evaluate=lambda model: next(scores))
    scored.run(ignore)
    whole = run_whole()
    assert all(torch.equal(w, snapshot(scored.model)[name]) for name, w in snapshot(whole.model).items())


def test_reports_come_at_each_evaluation_and_the_last_has_nothing_to_save():
    reports = []
    schedule = replace(SCHEDULE, steps=10, evaluate_every=4)
    training = make_training(schedule=schedule, evaluate=lambda model: 7.0)
    training.run(lambda progress, metrics, take: reports.append((metrics, take is None)))
    assert reports == [({"step": step, "dev": 7.0}, step == 10) for step in (4, 8, 10)]
    assert [entry["step"] for entry in training.progress.history if "dev" in entry] == [4, 8, 10]


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_steps():
    def break_weights(progress):
        if progress.step == 4:
            training.model.encoder.embeddings.LayerNorm.weight.data[0] = float("nan")

    reported = []
    training = make_training(schedule=replace(SCHEDULE, log_every=2, evaluate_every=6))
    with pytest.raises(FloatingPointError, match="steps 5 to 6: a loss is not finite; lower learning_rate"):
        training.run(lambda progress, *_: reported.append(progress.step), break_weights)
    assert not reported, "broken weights must not become a checkpoint"


def test_logged_losses_are_means_over_the_steps_that_have_them():
    each = run_whole().progress.history
    grouped = run_whole(schedule=replace(SCHEDULE, log_every=6)).progress.history
    assert [entry["step"] for entry in grouped] == [4, 6, 8, 12]
    for first, entry in zip([0, 4, 6, 8], grouped, strict=True):
        window = each[first : entry["step"]]
        values = {name: [e[name] for e in window if name in e] for name in LOSSES}
        means = {name: np.mean(found) for name, found in values.items() if found}
        assert losses_of(entry) == pytest.approx(means, rel=1e-6)


def test_tokens_are_the_real_ones():
    batches = make_batches()
    expected = sum(int(batches.batch(step).attention.sum()) for step in range(SCHEDULE.steps))
    assert run_whole().progress.tokens == expected


def test_stage_two_trains_on_clean_task_batches_alone():
    batches = replace(make_batches(rho1=0, masked=False), general=None)
    model = make_training().model
    model.mlm = None
    training = Training(model, batches, replace(SCHEDULE, steps=60, evaluate_every=60), Rank())
    history = training.run(ignore).history
    assert all(set(LOSSES) & entry.keys() == {"task"} for entry in history)
    assert history[-1]["task"] < 0.2 < 0.9 < history[0]["task"]  # 30 rows are learned by heart; ln 3 is 1.1


def test_bf16_stays_close_to_fp32():
    whole, half = run_whole(), run_whole(rank=Rank(precision="bf16"))
    for left, right in zip(whole.progress.history, half.progress.history, strict=True):
        assert losses_of(left) == pytest.approx(losses_of(right), rel=0.02)
    assert all(p.dtype == torch.float32 for p in half.model.parameters())


@pytest.mark.parametrize("micro_rows", [1, 2, 3, 7])
def test_rows_a_few_at_a_time_train_the_same_model(micro_rows):
    whole, parts = run_whole(), run_whole(rank=Rank(micro_rows=micro_rows))
    assert parts.progress.tokens == whole.progress.tokens
    assert all(p["padded"] <= w["padded"] for p, w in zip(parts.progress.history, whole.progress.history, strict=True))
    assert_near(parts.progress.history, snapshot(parts.model), whole)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.parametrize("micro_rows", [0, 3])
def test_rows_one_after_another_train_the_same_model(micro_rows):
    whole, packed = run_whole(), run_whole(rank=Rank(packed=True, micro_rows=micro_rows))
    assert packed.progress.tokens == whole.progress.tokens
    assert {entry["padded"] for entry in packed.progress.history} == {0.0}
    assert_near(packed.progress.history, snapshot(packed.model), whole)


FIFTY = replace(SCHEDULE, steps=50, evaluate_every=50)


@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_added_up_over_parts_have_the_losses_of_whole_steps(parts):
    micro_rows = FIFTY.batch_rows // parts
    assert len(list(make_batches().batch(0).parts(micro_rows))) == parts
    whole, split = run_whole(schedule=FIFTY), run_whole(schedule=FIFTY, rank=Rank(micro_rows=micro_rows))
    assert_near_losses(split.progress.history, whole)


def assert_near_losses(history, whole):
    for entry, expected in zip(history, whole.progress.history, strict=True):
        assert losses_of(entry) == pytest.approx(losses_of(expected), rel=1e-4)


def assert_near(history, weights, whole):
    assert_near_losses(history, whole)
    for name, weight in snapshot(whole.model).items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4)


def test_padding_and_waiting_are_told():
    batches = [make_batches().batch(step) for step in range(SCHEDULE.steps)]
    shares = [1 - batch.real_tokens / batch.tokens.size for batch in batches]
    history = run_whole().progress.history
    assert [entry["padded"] for entry in history] == pytest.approx(shares)
    assert all(0 < entry["waiting"] < 1 for entry in history)


def test_rates_are_of_steps_without_evaluations_since_the_last_entry(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("tlm_ray.training.loop.time", clock)

    def work(seconds, result):
        clock.now += seconds
        return result

    training = make_training(schedule=replace(SCHEDULE, log_every=2), evaluate=lambda model: work(100, 7.0))
    step = training.step
    monkeypatch.setattr(training, "step", lambda number: work(1 + number, step(number)))
    history = training.run(lambda *_: work(1000, None)).history
    tokens = np.array([make_batches().batch(step).tokens_total for step in range(SCHEDULE.steps)])
    expected = tokens.reshape(-1, 2).sum(1) / np.arange(1, SCHEDULE.steps + 1).reshape(-1, 2).sum(1)
    assert [entry["tokens_per_s"] for entry in history] == pytest.approx(expected.tolist())


def test_operations_are_counted_and_their_share_of_what_the_device_could_is_told(monkeypatch):
    monkeypatch.setattr("tlm_ray.training.loop.matmul_rate", lambda device, precision: 1e12)
    training = run_whole()
    batches, progress = [make_batches().batch(step) for step in range(SCHEDULE.steps)], training.progress
    assert progress.flops == sum(map(training.flops.computed, batches))
    assert run_whole(rank=Rank(micro_rows=3)).progress.flops != progress.flops
    for batch, entry in zip(batches, progress.history, strict=True):
        share = training.flops.real(batch) * entry["tokens_per_s"] / batch.real_tokens / 1e12
        assert entry["utilisation"] == pytest.approx(share)


def train_as_rank(rank, folder, world, micro_rows, sharded, resumed):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    this = Rank(rank=rank, world=world, micro_rows=micro_rows, sharded=sharded)
    options = {"schedule": FIFTY, "batches": make_batches(rank=rank, world=world), "rank": this}
    training = make_training(**options)
    if resumed:
        training.resume(f"{folder}/{resumed}")
    elif sharded:  # interrupted, and resumed from a checkpoint, which is of whole weights
        with pytest.raises(Interrupted):
            training.run(ignore, tick=lambda progress: interrupt_at(progress, 20))
        save_checkpoint(f"{folder}/checkpoint-{rank}", training._take())
        training = make_training(**options)
        training.resume(f"{folder}/checkpoint-{rank}")
    training.run(ignore)
    torch.save((training.progress.history, training.progress.tokens, snapshot(training.model)), f"{folder}/{rank}.pt")
    del training  # else its reducer drops the group last, and waits with the GIL for a thread of gloo that wants it
    dist.destroy_process_group()


def assert_ranks_train_as_one(folder, world, *options):
    mp.spawn(train_as_rank, (str(folder), world, *options), nprocs=world)
    whole, ranks = run_whole(schedule=FIFTY), [torch.load(folder / f"{rank}.pt") for rank in range(world)]
    for history, tokens, weights in ranks:
        assert tokens == whole.progress.tokens
        assert_near(history, weights, whole)


@pytest.mark.parametrize(("world", "micro_rows", "sharded"), [(2, 1, False), (4, 0, False), (2, 2, True)])
def test_several_ranks_train_the_same_model_as_one(tmp_path, world, micro_rows, sharded):
    assert_ranks_train_as_one(tmp_path, world, micro_rows, sharded, "")


@pytest.mark.parametrize("sharded", [False, True])
def test_a_run_of_one_rank_goes_on_with_two(tmp_path, sharded):
    one = make_training(schedule=FIFTY)
    with pytest.raises(Interrupted):
        one.run(ignore, tick=lambda progress: interrupt_at(progress, 20))
    save_checkpoint(f"{tmp_path}/one", one._take())
    assert_ranks_train_as_one(tmp_path, 2, 0, sharded, "one")


# If these change, what a training makes has changed: raise the version of stage_one and stage_two in
# tlm_ray/runs/pipeline.py, then write the new numbers here.
GOLDEN = [
    [4.4349], [4.3442], [4.4280, 1.1008], [4.3802], [4.5207], [4.3394, 1.1242], [4.3422], [4.3426], [4.3235, 1.0723],
    [4.3163],
]  # fmt: skip


def test_the_first_ten_losses_are_golden():
    history = run_whole().progress.history[:10]
    for entry, expected in zip(history, GOLDEN, strict=True):
        assert list(losses_of(entry).values()) == pytest.approx(expected, abs=1e-4)
