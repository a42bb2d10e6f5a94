"""Rows with replaced words: what may change, what is drawn, and the candidates of transformers alone."""

from dataclasses import replace

import numpy as np
import torch
from trainings import VOCABULARY, make_blocks, make_model, stage_one
from transformers import AutoModelForMaskedLM

from tlm_ray.training.objectives import Mlm
from tlm_ray.training.students import replacing
from tlm_ray.training.students.replacing import CANDIDATES, CHOSEN, _single_words, replaced
from tlm_ray.training.tokens.blocks import Blocks

WORDS = replace(VOCABULARY, continuing_ids=tuple(range(60, 70)))


def test_whole_words_alone_are_replaced_by_likely_ones_in_four_of_ten_places():
    rows = make_blocks(200, seed=0, labels=True)
    rows.tokens[rows.offsets[:-1]] = 2
    found = replaced(rows, 3, make_model(stage_one()).on("cpu"), WORDS, device="cpu")
    tokens = np.tile(rows.tokens, 3)
    assert len(found) == 600 and found.labels is None and (found.lengths == np.tile(rows.lengths, 3)).all()
    changed = found.tokens != tokens
    continues = np.isin(tokens, WORDS.continuing_ids)
    fixed = np.isin(tokens, WORDS.special_ids) | continues | np.append(continues[1:], False)
    assert not changed[fixed].any() and not np.isin(found.tokens[changed], WORDS.special_ids).any()
    share = changed[~fixed].mean()
    assert CHOSEN * (1 - 1 / CANDIDATES) - 0.03 < share < CHOSEN + 0.01, "some draws are the word itself"
    again = replaced(rows, 3, make_model(stage_one()).on("cpu"), WORDS, device="cpu")
    np.testing.assert_array_equal(found.tokens, again.tokens)


def test_a_word_at_the_end_of_a_row_is_whole_where_marks_begin_words():
    begin = replace(VOCABULARY, continuing_ids=(*VOCABULARY.special_ids, 60))  # all but the tokens that begin a word
    tokens = np.array([2, 20, 21, 60, 22, 3, 2, 23, 3])
    assert np.flatnonzero(_single_words(tokens, begin)).tolist() == [1, 4, 7]


def test_candidates_are_the_likeliest_of_transformers_own_model(monkeypatch, tmp_path):
    monkeypatch.setattr(replacing, "CHOSEN", 1.0)
    rows = Blocks(np.array([2, *range(20, 50), 3], np.int32), np.array([0, 32]))
    model = make_model(stage_one()).on("cpu")
    copies = replaced(rows, 300, model, WORDS, device="cpu").tokens.reshape(300, 32)
    read = torch.tensor([[2, *[WORDS.mask_id] * 30, 3]])
    model.export(Mlm(), tmp_path, precision="fp32")
    with torch.no_grad():
        logits = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(input_ids=read).logits[0]
    logits[:, list(WORDS.special_ids)] = -torch.inf
    likely = logits.topk(CANDIDATES).indices.numpy()
    for place in range(1, 31):
        assert {*copies[:, place].tolist()} == {*likely[place].tolist()}
    assert (copies[:, [0, 31]] == [2, 3]).all()
