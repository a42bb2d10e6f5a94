"""Token blocks, against transformers' own tokenisation of the same texts."""

import numpy as np
import pyarrow as pa
import pytest

from tlm_ray.training.blocks import CHUNK_TEXTS, read_blocks, write_general_blocks, write_task_blocks
from tlm_ray.training.tokenizer import train_wordpiece

WORDS = ["the", "encoder", "reads", "a", "passage", "and", "its", "rank", "decides", "what", "is", "kept", "or", "lost"]
BLOCK = 16


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([" ".join(WORDS)] * 20, vocabulary=90)


def make_texts(count, *, longest=60, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest))) for _ in range(count)]


def make_split(texts, pairs=None):
    labels = pa.array(np.arange(len(texts)) % 3, pa.int64())
    return pa.table({"text": texts, "text_pair": pa.array(pairs or [None] * len(texts), pa.string()), "label": labels})


def row(blocks, i):
    return blocks.tokens[blocks.offsets[i] : blocks.offsets[i + 1]].tolist()


def rows(blocks):
    return [row(blocks, i) for i in range(len(blocks))]


@pytest.fixture
def general(tokenizer, tmp_path):
    texts, ranks = make_texts(50), np.sort(np.random.default_rng(1).integers(0, 9, 50)).tolist()
    return texts, ranks, write_general_blocks(str(tmp_path / "g"), texts, ranks, tokenizer, block_tokens=BLOCK)


def test_general_blocks_are_transformers_overflowing_tokens(general, tokenizer):
    texts, ranks, blocks = general
    settings = {"truncation": True, "max_length": BLOCK, "stride": 0, "return_overflowing_tokens": True}
    expected = tokenizer(texts, **settings)
    assert rows(blocks) == expected["input_ids"]
    assert blocks.ranks.tolist() == [ranks[text] for text in expected["overflow_to_sample_mapping"]]


def test_no_token_of_a_long_passage_is_lost(general, tokenizer):
    texts, _, blocks = general
    inner = [token for block in rows(blocks) for token in block[1:-1]]
    assert inner == [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert blocks.lengths.max() == BLOCK and len(blocks) > len(texts)
    assert {block[0] for block in rows(blocks)} == {tokenizer.cls_token_id}
    assert {block[-1] for block in rows(blocks)} == {tokenizer.sep_token_id}


def test_an_empty_passage_makes_no_block(tokenizer, tmp_path):
    uri = str(tmp_path / "blocks.arrow")
    blocks = write_general_blocks(uri, ["the rank", "", " ", "lost"], [0, 1, 2, 3], tokenizer, block_tokens=BLOCK)
    assert blocks.ranks.tolist() == [0, 3]


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_is_no_block(tokenizer, tmp_path, texts):
    blocks = write_general_blocks(str(tmp_path / "b"), texts, [0] * len(texts), tokenizer, block_tokens=BLOCK)
    assert len(blocks) == len(blocks.lengths) == len(blocks.cut(5)) == 0


@pytest.mark.parametrize("k", [0, 1, 3, 8, 9, 100])
def test_cut_is_the_blocks_of_ranks_below_k(general, k):
    _, _, blocks = general
    cut = blocks.cut(k)
    assert rows(cut) == [row(blocks, i) for i in range(len(blocks)) if blocks.ranks[i] < k]
    assert (cut.ranks < k).all() and len(cut.ranks) == len(cut)


def test_cuts_nest_and_share_their_tokens(general):
    _, _, blocks = general
    assert rows(blocks.cut(7).cut(2)) == rows(blocks.cut(2))
    assert np.shares_memory(blocks.cut(2).tokens, blocks.tokens)


def test_cutting_task_blocks_is_refused(tokenizer, tmp_path):
    blocks = write_task_blocks(str(tmp_path / "t"), make_split(["the rank"]), tokenizer, task_tokens=8)
    with pytest.raises(AssertionError, match="only general blocks carry ranks"):
        blocks.cut(1)


def test_a_table_of_blocks_opens_again_as_it_was_written(general, tmp_path):
    _, _, blocks = general
    again = read_blocks(str(tmp_path / "g"))
    for name in ("tokens", "offsets", "ranks", "lengths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(blocks, name))
    assert again.types is None and again.labels is None


def test_blocks_of_a_local_file_are_memory_mapped(general, tmp_path):
    again = read_blocks(str(tmp_path / "g"))
    assert not again.tokens.flags.owndata and not again.tokens.flags.writeable
    assert again.tokens.dtype == np.int32 and again.offsets.dtype == np.int64


def test_task_rows_are_transformers_truncated_rows(tokenizer, tmp_path):
    texts = make_texts(40, seed=2)
    blocks = write_task_blocks(str(tmp_path / "t"), make_split(texts), tokenizer, task_tokens=20)
    assert rows(blocks) == tokenizer(texts, truncation=True, max_length=20)["input_ids"]
    assert blocks.lengths.max() == 20 and blocks.types is None
    np.testing.assert_array_equal(blocks.labels, np.arange(40) % 3)


def test_pairs_are_transformers_truncated_pairs(tokenizer, tmp_path):
    texts, pairs = make_texts(40, seed=3, longest=20), make_texts(40, seed=4, longest=20)
    blocks = write_task_blocks(str(tmp_path / "t"), make_split(texts, pairs), tokenizer, task_tokens=24)
    expected = tokenizer(texts, pairs, truncation=True, max_length=24, return_token_type_ids=True)
    assert rows(blocks) == expected["input_ids"] and blocks.lengths.max() == 24
    types = [blocks.types[blocks.offsets[i] : blocks.offsets[i + 1]].tolist() for i in range(len(blocks))]
    assert types == expected["token_type_ids"] and blocks.types.max() == 1


def test_texts_beyond_one_chunk_are_all_there_and_in_order(tokenizer, tmp_path):
    count = CHUNK_TEXTS + 3
    texts = [WORDS[i % len(WORDS)] for i in range(count)]
    general = write_general_blocks(str(tmp_path / "g"), texts, list(range(count)), tokenizer, block_tokens=BLOCK)
    task = write_task_blocks(str(tmp_path / "t"), make_split(texts), tokenizer, task_tokens=BLOCK)
    assert rows(general) == rows(task) == tokenizer(texts)["input_ids"]
    np.testing.assert_array_equal(general.ranks, np.arange(count))
    np.testing.assert_array_equal(task.labels, np.arange(count) % 3)
