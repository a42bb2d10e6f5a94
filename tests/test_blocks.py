"""Token blocks, against transformers' own tokenisation of the same texts."""

import hashlib
import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import SPLITS, Task
from tlm_ray.training.tokens import blocks as blocks_module
from tlm_ray.training.tokens import preparation
from tlm_ray.training.tokens.blocks import (
    CHUNK_TEXTS,
    join_general_blocks,
    read_blocks,
    write_general_blocks,
    write_task_blocks,
)
from tlm_ray.training.tokens.tokenizer import train_wordpiece

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


def test_a_table_of_blocks_is_the_bytes_that_pyarrow_makes_of_lists(general, tokenizer, tmp_path):
    texts, ranks, _ = general
    settings = {"truncation": True, "max_length": BLOCK, "stride": 0, "return_overflowing_tokens": True}
    encoded = tokenizer(texts, **settings)
    tokens = pa.array(encoded["input_ids"], pa.large_list(pa.int32()))
    kept = pa.array([ranks[text] for text in encoded["overflow_to_sample_mapping"]], pa.int32())
    table = pa.table({"tokens": tokens, "rank": kept})
    with pa.ipc.new_stream(str(tmp_path / "expected"), table.schema) as writer:
        writer.write_table(table)
    expected = (tmp_path / "expected").read_bytes()
    assert (tmp_path / "g").read_bytes() == expected + b"tlm_ray\0" + hashlib.sha256(expected).digest()


@pytest.mark.parametrize("chunk", [1, 7, 50])
@pytest.mark.parametrize("cuts", [[], [0], [20], [1, 2, 49]])
def test_chunks_and_parts_change_no_byte(general, tokenizer, tmp_path, monkeypatch, chunk, cuts):
    texts, ranks, _ = general
    monkeypatch.setattr(blocks_module, "CHUNK_TEXTS", chunk)
    parts = []
    for start, stop in itertools.pairwise([0, *cuts, len(texts)]):
        parts.append(str(tmp_path / f"part-{start}-{stop}"))
        write_general_blocks(parts[-1], texts[start:stop], ranks[start:stop], tokenizer, block_tokens=BLOCK)
    join_general_blocks(str(tmp_path / "joined"), parts)
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "g").read_bytes()


def test_tokens_are_python_objects_for_one_chunk_only(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks_module, "CHUNK_TEXTS", 50)

    class Pieces:
        """A tokenizer that gives each text a thousand tokens, each an object of its own."""

        def __call__(self, texts, add_special_tokens=True, **_):
            if isinstance(texts, str):
                return {"input_ids": [1, 3, 2] if add_special_tokens else [3]}
            return {"input_ids": [[1000 + place for place in range(1000)] for _ in texts]}

    texts = ["text"] * 1000
    tracemalloc.start()
    blocks = write_general_blocks(str(tmp_path / "g"), texts, [0] * 1000, Pieces(), block_tokens=BLOCK)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(blocks.tokens) > 1_000_000 and peak < 12 * len(blocks.tokens)  # lists of int take 36 bytes a token


def test_lengths_are_computed_once(general):
    _, _, blocks = general
    assert blocks.lengths is blocks.lengths
    assert blocks.cut(3).lengths.tolist() == blocks.lengths[: len(blocks.cut(3))].tolist()


@pytest.mark.usefixtures("alone")
def test_any_number_of_tables_makes_the_same_files(tokenizer, tmp_path):
    texts, labels = make_texts(60, seed=5), pa.array(np.arange(60) % 3, pa.int64())
    task = Task(
        name="t", metric="accuracy", labels=("a", "b", "c"), digests=("", "", ""),
        splits=dict.fromkeys(SPLITS, pa.table({"text": texts, "text_pair": [""] * 60, "label": labels})),
    )  # fmt: skip
    ranked = pa.table({"text": texts, "rank": pa.array(np.arange(60) // 7, pa.int32())})
    tokenizer.save_pretrained(tmp_path / "pieces" / "tokenizer")
    options = {"block_tokens": BLOCK, "task_tokens": BLOCK}
    made = {}
    for workers, texts_each in ((1, 1000), (2, 9)):
        selection = [str(tmp_path / f"{texts_each}-{start}.arrow") for start in range(0, 60, texts_each)]
        for part, uri in enumerate(selection):
            storage.write_table(uri, ranked.slice(part * texts_each, texts_each))
        folder = tmp_path / str(workers)
        pieces = str(tmp_path / "pieces")
        facts = preparation.make_blocks(str(folder), task, selection, pieces, workers=workers, **options)
        files = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
        made[workers] = (facts, files)
    assert made[1] == made[2]
    general = read_blocks(str(tmp_path / "2" / "general.arrow"))
    alone = write_general_blocks(str(tmp_path / "g"), texts, np.arange(60) // 7, tokenizer, block_tokens=BLOCK)
    assert rows(general) == rows(alone) and general.ranks.tolist() == alone.ranks.tolist()
    assert made[2][0]["general_blocks"] == len(alone) and made[2][0]["general_tokens"] == alone.lengths.sum()
    assert {name.partition("/")[0] for name in made[2][1]} == {
        "general.arrow", "train.arrow", "dev.arrow", "test.arrow", "facts.json", "tokenizer"
    }  # fmt: skip


def test_a_table_that_was_tokenised_before_an_interruption_is_not_tokenised_again(tokenizer, tmp_path):
    storage.write_table(str(tmp_path / "texts"), pa.table({"text": make_texts(9, seed=1), "rank": np.arange(9)}))
    tokenizer.save_pretrained(tmp_path / "pieces")
    item, arguments = {"part": 0, "texts": str(tmp_path / "texts")}, (str(tmp_path / "pieces"), str(tmp_path), BLOCK)
    made = preparation._write_part(item, *arguments)
    before = storage.read_bytes(made)
    (tmp_path / "texts").unlink()
    assert preparation._write_part(item, *arguments) == made and storage.read_bytes(made) == before
