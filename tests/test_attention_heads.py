"""Heads that are known: counted by hand, and in a model whose weights are made to look at one place."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2Model

from tlm_ray.report.figures.attention import Heads, heads_figure, heads_markdown, heads_records
from tlm_ray.training.scoring.attention_heads import attention_of, looks

LENGTH, CLS, SEP, STOP, WORD = 12, 1, 2, 3, 4
TOKENS = np.array([CLS, 5, 6, STOP, 7, 8, 9, WORD, 10, STOP, 11, SEP])
HEADS = ("previous", "next", "marks", "itself")


def test_the_largest_weight_of_each_query_is_counted_where_it_falls():
    weights = np.zeros((1, 3, 4, 4))
    weights[0, 0] = np.eye(4, k=-1) * 0.4 + 0.1  # the token before; the first query has none, so all are level there
    weights[0, 1] = np.eye(4, k=1)
    weights[0, 2, :, 3] = 1.0
    found = looks([(np.array([CLS, 5, 6, SEP]), weights)], marks=[CLS, SEP])
    np.testing.assert_array_equal(found.previous, [[0.75, 0.0, 0.0]])
    np.testing.assert_array_equal(found.next, [[0.0, 0.75, 0.25]])
    np.testing.assert_array_equal(found.marks, [[0.5, 0.5, 1.0]])


@pytest.fixture
def known(tmp_path):
    """A model of two layers of four heads, which look at the token before, the one after, marks, and the token itself.

    Positions are one-hot, so a query that is a shifted position meets the key at that position alone. Marks have a
    feature of their own, for which all queries of the third head ask. Layers add nothing to the hidden states.
    """
    size = 16
    width = 4 * size
    config = BertConfig(
        vocab_size=16, hidden_size=width, num_hidden_layers=2, num_attention_heads=4, intermediate_size=8,
        max_position_embeddings=size, num_labels=2,
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        embeddings = model.bert.embeddings
        embeddings.LayerNorm.weight.fill_(1.0)
        embeddings.position_embeddings.weight[:, :size] = torch.eye(size)
        for mark in (CLS, SEP, STOP):
            embeddings.word_embeddings.weight[mark, size] = 1.0
        for layer in model.bert.encoder.layer:
            layer.attention.output.LayerNorm.weight.fill_(1.0)
            layer.output.LayerNorm.weight.fill_(1.0)
            query, key = layer.attention.self.query, layer.attention.self.key
            for head, shift in ((0, 1), (1, -1), (3, 0)):
                rows = slice(head * size, (head + 1) * size)
                query.weight[rows, :size] = 4 * torch.roll(torch.eye(size), -shift, dims=0)
                key.weight[rows, :size] = 4 * torch.eye(size)
            query.bias[2 * size] = 4.0
            key.weight[2 * size, size] = 4.0
    model.save_pretrained(tmp_path)
    return tmp_path


def test_the_heads_of_a_model_that_is_known_are_counted_exactly(known):
    texts = [TOKENS, TOKENS[:10]]
    found = looks(attention_of(known, texts), marks=[CLS, SEP, STOP])
    model = Heads(row="known", task="t", previous=found.previous, next=found.next, marks=found.marks)
    expected = {"positional": [1, 1, 0, 0], "offset": [1, 1, 0, 0], "vertical": [0, 0, 1, 0]}
    for kind, heads in expected.items():
        np.testing.assert_array_equal(getattr(model, kind), np.array([heads, heads], bool), kind)
    inner = sum(len(text) - 1 for text in texts) / sum(map(len, texts))
    assert (found.previous[:, 0] >= inner).all() and (found.next[:, 1] >= inner).all()
    assert (found.marks[:, 2] == 1).all()
    (record,) = heads_records([model])
    assert {kind: record[kind] for kind in expected} == {"positional": 4, "offset": 4, "vertical": 2}


def test_types_are_not_given_to_a_model_that_does_not_read_them(tmp_path):
    GPT2Model(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2, n_positions=16)).save_pretrained(tmp_path)
    types = np.repeat([0, 1], LENGTH // 2)
    (_, without), (_, given) = (*attention_of(tmp_path, [TOKENS]), *attention_of(tmp_path, [TOKENS], [types]))
    np.testing.assert_array_equal(given, without)


def heads(row, *, previous=0.0, following=0.0, marks=0.0) -> Heads:
    return Heads(row=row, task="sciie", previous=np.array([[previous, 0.0]]), next=np.array([[following, 0.0]]),
                 marks=np.array([[marks, 0.0]]))  # fmt: skip


def test_a_head_that_looks_to_either_side_is_positional_but_has_no_one_offset():
    either, same, almost = heads("a", previous=0.5, following=0.4), heads("a", previous=0.9), heads("a", previous=0.89)
    assert [each.positional.sum() for each in (either, same, almost)] == [1, 1, 0]
    assert [each.offset.sum() for each in (either, same, almost)] == [0, 1, 0]
    assert [heads("a", marks=share).vertical.sum() for share in (0.9, 0.91)] == [0, 1], "more than 90 %"
    text = heads_markdown([either, same, heads("b", marks=1.0)])
    assert "| a | sciie | 2 | 1.00 ± 0.00 | 0.50 ± 0.71 | 0.00 ± 0.00 |" in text
    assert "| b | sciie | 2 | 0.00 | 0.00 | 1.00 |" in text


def test_the_figure_outlines_positional_heads_and_fades_vertical_ones():
    weights = np.tile(np.eye(6, k=-1), (1, 2, 1, 1))
    pictures = {}
    for name, model in (("plain", heads("a")), ("red", heads("a", previous=1.0)), ("faint", heads("a", marks=1.0))):
        with Image.open(io.BytesIO(heads_figure([model], {0: weights}))) as image:
            pictures[name] = np.asarray(image.convert("RGB")).astype(int)
    is_red = {name: ((p[..., 0] > 150) & (p[..., 1] < 80)).any() for name, p in pictures.items()}
    assert is_red == {"plain": False, "red": True, "faint": False}
    assert pictures["faint"].min(axis=-1).mean() > pictures["plain"].min(axis=-1).mean()
