"""Pairs of segments: laid out as written, against transformers' own models, however a step is computed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import trainings
from trainings import (
    GEOMETRY,
    VOCABULARY,
    make_blocks,
    make_model,
    one_thread,  # noqa: F401 - a fixture
    stage_one,
)
from transformers import AlbertForPreTraining, AutoConfig, BertForPreTraining
from ways import batch_of

from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import Features
from tlm_ray.training.objectives import Keys, Mlm, Nsp, Rows, Sop
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import uniform

CLS, SEP, END = 2, 3, tuple(range(60, 80))
ENDING = replace(VOCABULARY, ending_ids=END)
LARGE = replace(GEOMETRY, init_std=0.3)


@pytest.fixture(autouse=True)
def sentences(monkeypatch):
    """Rows between [CLS] and [SEP], a quarter of whose tokens end a sentence."""

    def framed(blocks: Blocks) -> Blocks:
        tokens = blocks.tokens.copy()
        tokens[blocks.offsets[:-1]], tokens[blocks.offsets[1:] - 1] = CLS, SEP
        return replace(blocks, tokens=tokens)

    monkeypatch.setattr(trainings, "VOCABULARY", ENDING)
    rows = {"general": make_blocks(100, seed=0, labels=False), "task": make_blocks(30, seed=1, labels=True)}
    monkeypatch.setattr(trainings, "ROWS", {name: framed(blocks) for name, blocks in rows.items()})


def settings(pairs, **changes):
    return stage_one(geometry=LARGE, objectives=(pairs, Mlm()), exported="mlm", **changes)


def prepared(pairs, lengths, *, step=0):
    """Rows of counted tokens, with a sentence end in the middle of each, as a step prepares them."""
    width = max(lengths)
    tokens = np.zeros((len(lengths), width), np.int64)
    for row, length in enumerate(lengths):
        tokens[row, :length] = [CLS, *(5 + (row * 20 + np.arange(length - 2)) % 50), SEP]
        if length >= 10:
            tokens[row, length // 2] = 60 + row
    attention = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    rows = Rows(tokens, attention, labels=None)
    return rows, pairs.prepare(rows, ENDING, Keys(0, step, np.arange(len(lengths))))


def segments(tokens, types, attention):
    """The segments of a laid-out row, by a plain reading of it."""
    real = [int(token) for token, inside in zip(tokens, attention, strict=True) if inside]
    assert real[0] == CLS and real[-1] == SEP and real.count(SEP) == 2
    cut = real.index(SEP)
    assert types[: cut + 1].tolist() == [0] * (cut + 1) and types[cut + 1 : len(real)].all()
    return real[1:cut], real[cut + 1 : -1]


@pytest.mark.parametrize("pairs", [Sop(), Nsp()])
def test_a_passage_is_cut_behind_a_sentence_and_half_are_other_pairs(pairs):
    answers = []
    for step in range(60):
        rows, made = prepared(pairs, [24, 20, 16, 12, 6], step=step)
        targets = made.targets[pairs.name]
        assert targets.total == 4 and targets.values[4] == -100, "of six tokens no pair is made"
        np.testing.assert_array_equal(made.tokens[4], rows.tokens[4])
        firsts, seconds = {}, {}
        for row in range(4):
            text = rows.tokens[row, 1 : rows.attention[row].sum() - 1].tolist()
            cut = text.index(60 + row) + 1
            firsts[row], seconds[row] = text[:cut], text[cut:]
        for row, answer in enumerate(targets.values[:4]):
            a, b = segments(made.tokens[row], made.types[row], made.attention[row])
            if pairs.name == "sop":
                wanted = [(seconds[row], firsts[row])] if answer else [(firsts[row], seconds[row])]
            else:
                wanted = [(firsts[row], seconds[n]) for n in range(4) if (n != row) == bool(answer)]
            near = [(x, y) for x, y in wanted if x[: len(a)] == a and y[: len(b)] == b]
            assert near and len(a) + len(b) >= min(len(near[0][0]) + len(near[0][1]), 24 - 3), "cut where it must be"
            answers.append(answer)
    assert 90 < sum(answers) < 150


def test_next_sentences_are_those_of_bert():
    model, batch = make_model(settings(Nsp())).on("cpu").eval(), batch_of(settings(Nsp()), "general")
    reference, head = BertForPreTraining(model.config).eval(), model.heads["nsp"]
    with model.heads["mlm"].whole(model.encoder) as whole:
        assert not reference.load_state_dict(whole.state_dict(), strict=False).unexpected_keys
    reference.bert.pooler.dense.load_state_dict(head[0].state_dict())
    reference.cls.seq_relationship.load_state_dict(head[2].state_dict())
    mlm, inputs = batch.targets["mlm"], to_device(batch, "cpu")[0]
    chosen = torch.from_numpy(np.where(mlm.chosen, mlm.values, -100))
    answers = torch.from_numpy(batch.targets["nsp"].values)
    with torch.no_grad():
        expected = reference(**inputs, labels=chosen, next_sentence_label=answers).loss
        sums = model(*to_device(batch, "cpu"))
    own = sum(sums[name] / batch.targets[name].total for name in ("mlm", "nsp"))
    torch.testing.assert_close(own, expected, rtol=1e-5, atol=0)


def test_orders_of_segments_are_those_of_albert():
    model, batch = make_model(settings(Sop())).on("cpu").eval(), batch_of(settings(Sop()), "general")
    width = LARGE.width
    sizes = {"hidden_size": width, "embedding_size": width, "num_attention_heads": 2, "intermediate_size": 64}
    config = AutoConfig.for_model("albert", vocab_size=80, pad_token_id=0, **sizes)
    reference, head, inputs = AlbertForPreTraining(config).eval(), model.heads["sop"], to_device(batch, "cpu")[0]
    reference.albert.pooler.load_state_dict(head[0].state_dict())
    reference.sop_classifier.classifier.load_state_dict(head[2].state_dict())
    with torch.no_grad():
        hidden, _ = Features(model, inputs).rectangle
        pooled = reference.albert.pooler_activation(reference.albert.pooler(hidden[:, 0]))
        logits = reference.sop_classifier(pooled)
        answers = torch.from_numpy(batch.targets["sop"].values)
        expected = torch.nn.CrossEntropyLoss()(logits, answers)
        sums = model(*to_device(batch, "cpu"))
    torch.testing.assert_close(sums["sop"] / batch.targets["sop"].total, expected, rtol=1e-5, atol=0)


def test_pairs_after_masks_are_refused():
    with pytest.raises(ValueError, match="objective sop: lays out the rows, so it must be the first of the objectives"):
        batch_of(stage_one(objectives=(Mlm(), Sop())), "general")
    with pytest.raises(ValueError, match="nsp least 0: must be 1 or more"):
        Nsp(least=0)


def test_draws_are_keyed_apart_from_those_of_masks():
    keys = {"step": 1, "rows": np.arange(3), "columns": 4, "draws": 2}
    assert not np.isin(uniform(seed=0x9A125, **keys), uniform(seed=0, **keys)).any()
