"""T5: spans as released, labels written as text, and what transformers alone computes with the same weights."""

from dataclasses import replace
from itertools import chain, pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from alone import in_this_process
from small import GEOMETRY as SMALL
from small import small_flow, small_recipe
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from trainings import GEOMETRY, LABELS, VOCABULARY, make_model, stage_one
from transformers import AutoTokenizer, T5ForConditionalGeneration
from ways import batch_of, learned

from tlm_ray import make, predict_texts
from tlm_ray.evaluation.predictions import read_predictions, shares
from tlm_ray.runs import experiment
from tlm_ray.runs.flow.training import Training
from tlm_ray.training.encoders.decoders import with_label_tokens
from tlm_ray.training.encoders.starts import Pretrained, Scratch, scratch_config
from tlm_ray.training.model.architecture_check import try_architecture
from tlm_ray.training.model.flops import Flops
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Keys, Labels, Mlm, Rows, Spans, TextLabels
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.counts import Counts
from tlm_ray.training.tokens.masking import Vocabulary
from tlm_ray.training.tokens.tokenizer import load_tokenizer, train_wordpiece

T5 = replace(GEOMETRY, layers=2, family="t5")
START = Scratch(replace(SMALL, layers=2, family="t5"))
OBJECTIVES = {"objectives": (Spans(),), "labels": TextLabels()}
MANY = Vocabulary(size=900, pad_id=0, mask_id=4, special_ids=(0, 2, 3), sentinel_ids=tuple(range(800, 900)), end_id=3)


def rows_of(*lengths: int) -> Rows:
    """Rows of increasing tokens between [CLS] and [SEP]."""
    width = max(lengths) + 2
    inside = np.arange(width) < np.array(lengths)[:, None] + 2
    tokens = np.where(inside, np.arange(width) + 4, 0)
    tokens[:, 0] = 2
    tokens[np.arange(len(lengths)), np.array(lengths) + 1] = 3
    return Rows(tokens, inside.astype(np.int64), labels=None)


def keys(rows: Rows, step: int = 0) -> Keys:
    return Keys(7, step, np.arange(len(rows.tokens)))


def test_500_tokens_are_450_to_read_and_101_to_write():
    rows = rows_of(500)
    spans = Spans().prepare(rows, MANY, keys(rows))
    assert spans.attention.sum() == 2 + 425 + 25 and spans.targets["spans"].total == 75 + 25 + 1


def test_what_is_read_and_written_is_the_text():
    rows = rows_of(500, 40, 7, 2, 1, 0)
    prepared = Spans(length=2.0).prepare(rows, MANY, keys(rows))
    sentinels = {token: number for number, token in enumerate(MANY.sentinel_ids)}
    for row, (read, inside, written) in enumerate(
        zip(prepared.tokens, prepared.attention, prepared.targets["spans"].values, strict=True)
    ):
        *text, end = written[written != -100].tolist()
        assert end == 3
        starts = [place for place, token in enumerate(text) if token in sentinels]
        assert [sentinels[text[place]] for place in starts] == list(range(len(starts)))
        gaps = [text[start + 1 : stop] for start, stop in pairwise([*starts, len(text)])]
        assert all(gaps)
        whole = [gaps[sentinels[token]] if token in sentinels else [token] for token in read[inside == 1].tolist()]
        assert list(chain.from_iterable(whole)) == rows.tokens[row][rows.attention[row] == 1].tolist()
        assert (read[inside == 0] == 0).all()
    assert (prepared.targets["spans"].values[-2:] != -100).sum() == 2, "rows of one token or none have the end alone"


def test_all_cuts_are_equally_likely_and_text_comes_first():
    draws = np.random.default_rng(0).random((6000, 2, 12))
    found = [tuple(Spans(share=0.5, length=2.0).spans(12, draw)) for draw in draws]  # 6 dropped, in 3 spans
    assert all(spans[0] == 0 and spans[-1] == 3 and sum(map(bool, spans)) == 6 for spans in found)
    kinds, counts = np.unique(np.array(found), axis=0, return_counts=True)
    assert len(kinds) == 10 * 10  # compositions of 6 into 3, twice
    assert ((counts - 60) ** 2 / 60).sum() < 150  # chi-square with 99 degrees of freedom: p = 0.0007


def test_draws_depend_on_seed_step_and_row_alone():
    rows = rows_of(30, 40, 50)
    one, other = (Spans().prepare(rows, MANY, keys(rows, step)) for step in (3, 4))
    assert not np.array_equal(one.targets["spans"].values, other.targets["spans"].values)
    alone = replace(rows, tokens=rows.tokens[1:2], attention=rows.attention[1:2])
    same = Spans().prepare(alone, MANY, Keys(7, 3, np.array([1])))
    length = int(same.attention.sum())
    assert np.array_equal(same.tokens[0, :length], one.tokens[1, :length])


def test_a_span_crosses_a_special_token_that_is_read():
    tokens = np.array([[2, 10, 11, 3, 12, 13, 3]])
    rows = Rows(tokens, np.ones_like(tokens), labels=None)
    spans = Spans(share=0.99, length=9.0).prepare(rows, MANY, keys(rows))
    assert spans.tokens[0, : spans.attention.sum()].tolist() == [2, 10, 800, 3, 3]
    assert spans.targets["spans"].values[0, :5].tolist() == [800, 11, 12, 13, 3]


def test_losses_and_gradients_are_those_of_transformers():
    settings = stage_one(geometry=T5, **OBJECTIVES)
    batch = batch_of(settings, "task")
    model = make_model(settings).on("cpu").train()
    losses, gradients = learned(model, [batch])
    with model.heads["spans"].whole(model.encoder) as whole:
        read = {"input_ids": torch.from_numpy(batch.tokens), "attention_mask": torch.from_numpy(batch.attention)}
        values, labels = (torch.from_numpy(batch.targets[name].values) for name in ("spans", "labels"))
        texts = torch.tensor([[label, label, 1] for label in range(len(LABELS))])[labels]
        spans, names = whole(**read, labels=values).loss, whole(**read, labels=texts).loss
        assert losses == pytest.approx(
            {
                "spans": float(spans.detach()) * batch.targets["spans"].total,
                "labels": float(names.detach()) * 3 * len(labels),
            },
            rel=1e-5,
        )
        model.zero_grad()
        (20 * spans * batch.token_share + 3 * names).div(21).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n} {m}"
        )


def test_operations_are_counted_as_torch_does():
    settings = stage_one(geometry=T5, **OBJECTIVES)
    model, batch = make_model(settings).on("cpu").train(), batch_of(settings, "task")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        sum(model(*to_device(batch, "cpu")).values()).backward()
    assert Flops(model).computed(batch) == counter.get_total_flops() > 0


def test_soft_labels_count_each_name_by_its_probability():
    settings = stage_one(geometry=T5, **OBJECTIVES)
    model, batch = make_model(settings).on("cpu").train(), batch_of(settings, "task")
    hard = learned(model, [batch])[0]["labels"]
    targets = batch.targets["labels"]
    soft = replace(targets, values=np.eye(len(LABELS), dtype=np.float32)[targets.values])
    assert learned(model, [replace(batch, targets={"labels": soft})])[0]["labels"] == pytest.approx(hard, rel=1e-5)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("t5")


@pytest.fixture(scope="module")
def stages(data, root):
    """The stages of a small T5, made."""
    flow = small_flow(data, root)
    recipe = small_recipe(start=START, counts=Counts(scale=1.0), vocabulary=300, **OBJECTIVES)
    found = flow.stages(recipe, "topics", 0)
    with in_this_process():
        make([found.metrics], flow.execution.root)
    return found


@pytest.mark.usefixtures("alone")
def test_it_makes_a_row_that_transformers_alone_predicts(data, root, stages, tmp_path):
    folder = f"{stages.stage_two.folder(str(root))}/model"
    model, tokenizer = T5ForConditionalGeneration.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 300 and tokenizer.convert_ids_to_tokens([299]) == ["<extra_id_99>"]
    names = [model.config.id2label[label] for label in range(3)]
    written = [tokenizer(name, add_special_tokens=False)["input_ids"] + [tokenizer.sep_token_id] for name in names]
    assert model.config.label_tokens == written and model.config.eos_token_id == tokenizer.sep_token_id

    def likelihoods(text: str) -> list[float]:
        read = tokenizer(text, return_tensors="pt")
        ids, mask = read["input_ids"], read["attention_mask"]
        with torch.no_grad():
            losses = [model(input_ids=ids, attention_mask=mask, labels=torch.tensor([own])).loss for own in written]
        return [-float(loss) * len(own) for loss, own in zip(losses, written, strict=True)]

    texts = ["the waves of the sea", "stars in the sky at night", "a pan in the kitchen"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "new.parquet")
    predict_texts(folder, f"{tmp_path}/new.parquet", f"{tmp_path}/out", columns=["text"], workers=1)
    found = pq.read_table(tmp_path / "out" / "part-00000-00000.parquet")
    expected = shares(np.array([likelihoods(text) for text in texts], np.float32))
    np.testing.assert_allclose(np.array(found["probabilities"].to_pylist()), expected, atol=1e-5)
    assert found["predicted"].to_pylist() == [names[best] for best in expected.argmax(axis=1)]

    facts, gold = stages.metrics.record(str(root))["facts"], pq.read_table(data / "tasks" / "topics" / "test.parquet")
    said = []
    for text in gold["text"].to_pylist():
        read = tokenizer(text, return_tensors="pt", truncation=True)
        tokens = model.generate(**{name: read[name] for name in ("input_ids", "attention_mask")}, max_new_tokens=9)
        said.append(tokens[0, 1:].tolist())
    labels = [written.index(own) if own in written else -1 for own in said]
    right = np.mean(
        [
            names[label] == own if label >= 0 else False
            for label, own in zip(labels, gold["label"].to_pylist(), strict=True)
        ]
    )
    assert (facts["written_right"], facts["written_else"]) == (
        pytest.approx(right),
        pytest.approx(labels.count(-1) / 24),
    )

    blocks, metrics = (stage.folder(str(root)) for stage in (stages.blocks, stages.metrics))
    dev = read_blocks(f"{blocks}/dev.arrow")
    first = tokenizer.decode(dev.tokens[1 : dev.offsets[1] - 1].tolist())
    scored = read_predictions(metrics, "dev").logits[0]
    np.testing.assert_allclose(scored, likelihoods(first), rtol=1e-4)


@pytest.mark.usefixtures("alone")
def test_stage_one_knows_the_labels_too(root, stages):
    facts = stages.stage_one.record(str(root))["facts"]
    assert "dev" in facts["history"][-1] and facts["flops_counted"] > 0
    assert facts["parameters"] == START.parameters(vocabulary=300)
    task_model = T5ForConditionalGeneration.from_pretrained(f"{stages.stage_one.folder(str(root))}/task_model")
    assert len(task_model.config.label_tokens) == 3


def test_a_trained_tokenizer_ends_with_sentinels(tmp_path):
    texts = ["the sea and the sky"] * 9
    plain, own = train_wordpiece(texts, vocabulary=60), train_wordpiece(texts, vocabulary=60, sentinels=5)
    assert len(own) <= 60 and own("the sea <extra_id_3>")["input_ids"][-2] == own.convert_tokens_to_ids("<extra_id_3>")
    own.save_pretrained(tmp_path / "own")
    known = Vocabulary.of(load_tokenizer(tmp_path / "own", sentinels=5))
    assert known.sentinel_ids == tuple(range(len(own) - 5, len(own))) and known.end_id == own.sep_token_id
    assert set(known.sentinel_ids) <= set(known.special_ids)
    plain.save_pretrained(tmp_path / "plain")
    assert Vocabulary.of(load_tokenizer(tmp_path / "plain")).sentinel_ids == ()
    with pytest.raises(ValueError, match="has no '<extra_id_4>', which the objective spans needs"):
        load_tokenizer(tmp_path / "plain", sentinels=5)


def test_what_does_not_fit_is_refused_before_anything_is_made(tmp_path):
    geometry = replace(SMALL, family="t5")
    with pytest.raises(ValueError, match=r"objectives mlm, labels: do not fit the family 't5'; give objectives=.Spans"):
        small_recipe(start=Scratch(geometry))
    with pytest.raises(ValueError, match="objectives spans, labels: do not fit the family 'bert'; give objectives of"):
        small_recipe(start=Scratch(replace(SMALL, family="bert")), objectives=(Spans(),), labels=TextLabels())
    for labels, objectives in ((TextLabels(), (Mlm(),)), (Labels(), (Mlm(), Spans()))):
        with pytest.raises(ValueError, match="do not fit the family 'bert'; give objectives of an encoder"):
            small_recipe(start=Scratch(replace(SMALL, family="bert")), objectives=objectives, labels=labels)
    with pytest.raises(ValueError, match="vocabulary 150: 100 are sentinels; give 200 or more"):
        small_recipe(start=Scratch(geometry), vocabulary=150, **OBJECTIVES)
    long = {"objectives": (Spans(length=1.0),), "labels": TextLabels(), "block_tokens": 900}
    with pytest.raises(ValueError, match="rows of 900 tokens have 135 spans, and there are 100 sentinels"):
        small_recipe(start=Scratch(replace(geometry, positions=1024)), **long)
    with pytest.raises(ValueError, match="a decoder has one task and all its layers"):
        small_recipe(start=Scratch(geometry), tasks=("topics", "other"), **OBJECTIVES)
    with pytest.raises(ValueError, match="family 't5': its relative positions allow no packed rows"):
        make_model(stage_one(geometry=T5, **OBJECTIVES)).on("cpu", packed=True)
    with pytest.raises(ValueError, match=r"smoothing 0.1: the names of labels have none"):
        TextLabels(smoothing=0.1)
    for wrong, message in (({"share": 0.0}, "spans share 0.0"), ({"length": 0.5}, "spans length 0.5")):
        with pytest.raises(ValueError, match=message):
            Spans(**wrong)
    rows = rows_of(200)
    with pytest.raises(ValueError, match="a row has 30 spans, and the tokenizer 10 sentinels"):
        Spans(length=1.0).prepare(rows, VOCABULARY, keys(rows))
    config = make_model(stage_one(geometry=T5, **OBJECTIVES)).config
    config.save_pretrained(tmp_path)
    try_architecture(Pretrained(str(tmp_path)), (Spans(), TextLabels()), packed=False, longest=128)
    with pytest.raises(ValueError, match="architecture 't5': it is an encoder-decoder, and the objective 'mlm' cannot"):
        try_architecture(Pretrained(str(tmp_path)), (Mlm(),), packed=False, longest=128)


def test_labels_that_a_tokenizer_cannot_tell_apart_are_refused():
    tokenizer = train_wordpiece(["sea sky"] * 9, vocabulary=60, sentinels=5)
    config = scratch_config(T5, vocabulary=60, pad_id=0, labels=("Sea", "sky", "sea"))
    with pytest.raises(ValueError, match="labels 'Sea' and 'sea': are the same to the tokenizer"):
        with_label_tokens(config, tokenizer)
    config = scratch_config(T5, vocabulary=60, pad_id=0, labels=("sea", "0"))
    with pytest.raises(ValueError, match="label '0': the tokenizer does not know its characters"):
        with_label_tokens(config, tokenizer)


def test_a_classifier_that_knows_no_labels_is_refused(data, tmp_path):
    model = T5ForConditionalGeneration(make_model(stage_one(geometry=T5, **OBJECTIVES)).config)
    model.save_pretrained(tmp_path / "model")
    train_wordpiece(["the sea"] * 9, vocabulary=60).save_pretrained(tmp_path / "model")
    pq.write_table(pa.table({"text": ["the sea"]}), tmp_path / "new.parquet")
    with pytest.raises(ValueError, match="is no trained classifier, its weights lack"):
        predict_texts(f"{tmp_path}/model", f"{tmp_path}/new.parquet", f"{tmp_path}/out", columns=["text"], workers=1)


def test_a_model_that_writes_is_not_logged_as_a_pipeline(capsys):
    training = Training(row="T5", task="topics", recipe=small_recipe(start=START, **OBJECTIVES))
    outcome = SimpleNamespace(model=lambda training: "/root/model")  # without log_model
    experiment._log_model(outcome, training)
    assert "transformers has no pipeline for the model of 'T5'; it stays in /root/model" in " ".join(
        capsys.readouterr().out.split()
    )
