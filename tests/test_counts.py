"""Token embeddings and output bias from counts, against plain loops and a dense SVD."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from joints import make_model as make_joint
from small import laid_out, small_flow, small_recipe

from tlm_ray import storage
from tlm_ray.runs.stages.making import make
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.counts import SMOOTHING, Counts, count, together
from tlm_ray.training.tokens.preparation import COUNTS, read_counts

VOCABULARY, SPECIAL, WIDTH = 30, (0, 1), 6


def make_blocks(rows: int, *, seed: int) -> Blocks:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, rows)
    tokens = rng.zipf(1.5, lengths.sum()).clip(1, VOCABULARY - 2).astype(np.int32)
    tokens[np.cumsum(lengths) - 1] = 0  # a separator
    return Blocks(tokens, np.concatenate([[0], np.cumsum(lengths)]))


BLOCKS = [make_blocks(300, seed=0), make_blocks(40, seed=1)]
SIZE = {"vocabulary": VOCABULARY, "special_ids": SPECIAL, "width": WIDTH}


def plain_embeddings(how: Counts) -> np.ndarray:
    """The same by loops over all pairs of tokens and numpy's SVD."""
    together = np.zeros((VOCABULARY, VOCABULARY))
    for blocks in BLOCKS:
        for begin, end in zip(blocks.offsets, blocks.offsets[1:], strict=False):
            row = blocks.tokens[begin:end]
            for i, j in [(i, j) for i in range(len(row)) for j in range(len(row)) if 0 < abs(i - j) <= how.window]:
                if row[i] not in SPECIAL and row[j] not in SPECIAL:
                    together[row[i], row[j]] += 1 / abs(i - j)
    total = together.sum(axis=1)
    context = total**SMOOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.log(together * context.sum() / np.outer(total, context)), neginf=0.0)
    vectors, values, _ = np.linalg.svd(information.clip(0))
    return vectors[:, :WIDTH] * np.sqrt(values[:WIDTH])


@pytest.mark.parametrize("window", [1, 3])
def test_embeddings_are_those_of_plain_loops_and_a_dense_svd(window):
    how = Counts(window=window, scale=0.1, least=3)
    found, expected = count(BLOCKS, how, **SIZE).embeddings, plain_embeddings(how)
    frequency = sum(np.bincount(blocks.tokens, minlength=VOCABULARY) for blocks in BLOCKS)
    known = (frequency >= 3) & (np.abs(expected).sum(axis=1) > 1e-9)
    assert (found.any(axis=1) == known).all() and 8 < known.sum() < VOCABULARY
    np.testing.assert_allclose(np.sqrt((found[known] ** 2).mean(axis=1)), 0.1, rtol=1e-5)
    directions = [each[known] / np.linalg.norm(each[known], axis=1, keepdims=True) for each in (found, expected)]
    np.testing.assert_allclose(*(each @ each.T for each in directions), atol=1e-3)  # whatever the signs


def test_the_bias_is_the_log_of_shares():
    tokens = np.concatenate([blocks.tokens for blocks in BLOCKS])
    expected = np.log((np.bincount(tokens, minlength=VOCABULARY) + 1) / (len(tokens) + VOCABULARY))
    np.testing.assert_allclose(count(BLOCKS, Counts(), **SIZE).bias, expected, rtol=1e-6)


def test_rows_do_not_reach_into_each_other():
    rows = Blocks(np.arange(2, 22, dtype=np.int32), np.arange(0, 21, 2))
    found = together([rows], 5, VOCABULARY, SPECIAL).toarray()
    expected = np.zeros((VOCABULARY, VOCABULARY))
    expected[np.arange(2, 22), np.arange(2, 22) ^ 1] = 1
    np.testing.assert_array_equal(found, expected)


def test_a_small_vocabulary_fills_some_columns_and_none_is_refused():
    rows = Blocks(np.array([2, 3, 4, 2, 4, 3, 3, 2], np.int32), np.array([0, 3, 6, 8]))
    found = count([rows], Counts(least=1), **SIZE).embeddings
    assert found[2:5].any(axis=1).all() and found[:, :3].any() and not found[:, 3:].any()
    with pytest.raises(ValueError, match="the text has no two adjacent tokens"):
        count([Blocks(np.array([2, 3], np.int32), np.arange(3))], Counts(), **SIZE)


def test_what_was_cut_off_does_not_count():
    whole = replace(BLOCKS[0], ranks=np.arange(300, dtype=np.int32))
    alone = Blocks(whole.tokens[: whole.offsets[50]], whole.offsets[:51])
    for one, other in zip(count([whole.cut(50)], Counts(), **SIZE), count([alone], Counts(), **SIZE), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"least": 0}, {"scale": 0.0}, {"scale": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"counts: {name} "):
        Counts(**wrong)


def test_a_model_begins_with_what_is_known_and_keeps_the_rest():
    model, untouched = make_joint(seed=0), make_joint(seed=0)
    before = untouched.encoder.get_input_embeddings().weight
    embeddings = np.zeros(tuple(before.shape), np.float32)
    embeddings[[3, 7]] = np.random.default_rng(0).normal(size=(2, before.shape[1]))
    bias = np.linspace(-9, -1, len(before)).astype(np.float32)
    model.begin_with(embeddings, bias)
    table, head = model.encoder.get_input_embeddings().weight, model.heads["mlm"].last
    expected = before.clone()
    expected[[3, 7]] = torch.from_numpy(embeddings[[3, 7]])
    assert torch.equal(table, expected) and head.weight is table
    assert torch.equal(head.bias, torch.from_numpy(bias))


COUNTED = {"counts": Counts(least=1)}


@pytest.mark.usefixtures("alone")
def test_a_training_that_begins_with_counts_has_the_same_bits_for_any_number_of_shards(data, tmp_path):
    made, histories = [], []
    for shards in (1, 7):
        flow = small_flow(data, tmp_path / str(shards), shards=shards)
        stages, root = laid_out(flow, **COUNTED), flow.execution.root
        make([stages.stage_one], root)
        made.append(storage.read_bytes(storage.join(stages.counts.folder(root), COUNTS)))
        histories.append(stages.stage_one.record(root)["facts"]["history"])
    assert made[0] == made[1]
    assert [entry["general_mlm"] for entry in histories[0] if "general_mlm" in entry] == [
        entry["general_mlm"] for entry in histories[1] if "general_mlm" in entry
    ]
    embeddings, bias = read_counts(stages.counts.folder(root))
    assert embeddings.shape == (len(bias), 32) and 0.3 < embeddings.any(axis=1).mean() < 0.6
    random = laid_out(flow).stage_one
    make([random], root)
    first = random.record(root)["facts"]["history"][0]["general_mlm"]
    assert histories[1][0]["general_mlm"] < first - 0.1, "it knows how frequent each word is"


def test_counts_identify_what_begins_with_them_and_nothing_else(data, tmp_path):
    flow = small_flow(data, tmp_path)
    plain, counted, wider = laid_out(flow), laid_out(flow, **COUNTED), laid_out(flow, counts=Counts(window=9))
    assert plain.counts is None and plain.blocks.fingerprint == counted.blocks.fingerprint
    assert len({each.stage_one.fingerprint for each in (plain, counted, wider)}) == 3
    with pytest.raises(ValueError, match=r"counts .*: need a stage one and a start that knows its width"):
        replace(small_recipe(**COUNTED), start=Pretrained("owner/encoder"))
