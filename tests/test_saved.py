"""An index on disk: the same search, on any filesystem, and damage that is noticed."""

import re

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray import storage
from tlm_ray.retrieval import Analyzer, export_bm25s, index_passages, read_index, search, write_index

TEXTS = [
    "the cat sat",
    "the dog ran far",
    None,
    "the cat and the dog",
    "語 語 ü",
    *[f"the w{i % 40} w{i}" for i in range(200)],
]
QUERIES = ["the cat", "w3 w7 dog", "語", "unknown"]


def same(a, b):
    return a.ids.tobytes() == b.ids.tobytes() and a.scores.tobytes() == b.scores.tobytes()


@pytest.fixture
def folder(tmp_path):
    write_index(index_passages(TEXTS, analyzer=Analyzer("english", "english")), str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.mark.parametrize("texts", [TEXTS, [], [""], ["a"], ["a b", "c d"] * 50])
def test_an_index_read_back_finds_the_same(tmp_path, texts):
    made = index_passages(texts)
    write_index(made, str(tmp_path / "index"))
    found = read_index(str(tmp_path / "index"))
    assert same(search(found, [*QUERIES, "a c"], k=20), search(made, [*QUERIES, "a c"], k=20))


def test_the_analyzer_comes_back(folder):
    found = read_index(str(folder))
    assert found.analyzer == Analyzer("english", "english")
    assert same(search(found, ["dogs the"], k=5), search(found, ["dog"], k=5))


@pytest.mark.parametrize("name", ["terms.arrow", "postings.arrow", "coarse.arrow", "exact.arrow"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "swap"])
def test_damage_is_named(folder, name, damage):
    file = folder / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "truncate":
        data = data[: len(data) // 2]
    elif damage == "swap":
        write_index(index_passages(["foreign"]), str(folder.parent / "other"))
        data = (folder.parent / "other" / name).read_bytes()
    file.unlink()
    if damage != "remove":
        file.write_bytes(data)
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}' is corrupt.*build the index again"):
        read_index(str(folder))


def test_a_folder_without_a_record_holds_no_index(folder):
    (folder / "record.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no index at .*record.json is missing"):
        read_index(str(folder))


@pytest.mark.parametrize("record", [{}, {"format": 99}])
def test_another_format_is_refused(folder, record):
    storage.write_record(str(folder / "record.json"), record)
    with pytest.raises(ValueError, match="not an index record of format 3"):
        read_index(str(folder))


def test_an_interrupted_write_leaves_no_index(folder, monkeypatch):
    def full(uri, table):
        raise OSError(28, "No space left on device", uri)

    monkeypatch.setattr(storage, "write_table", full)
    with pytest.raises(OSError, match=r"No space left.*terms\.arrow"):
        write_index(index_passages(TEXTS), str(folder))
    with pytest.raises(FileNotFoundError, match="no index"):
        read_index(str(folder))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "b a", "c c", "", "d e f"]), min_size=1, max_size=30))
def test_postings_are_those_of_the_texts(texts):
    index = index_passages(texts)
    for t, term in enumerate(index.terms.to_pylist()):
        passages, weights = index.weights(t)
        assert passages.tolist() == [i for i, text in enumerate(texts) if term in text.split()]
        assert (weights > 0).all()


def test_bm25s_opens_the_export_and_scores_alike(tmp_path):
    index = index_passages(TEXTS)
    export_bm25s(index, str(tmp_path / "bm25s"))
    theirs = bm25s.BM25.load(str(tmp_path / "bm25s"))
    for query in QUERIES[:3]:
        words = [word for word in re.findall(r"\w+", query) if word in theirs.vocab_dict]
        expected, found = theirs.get_scores(words), search(index, [query], k=len(TEXTS))
        matches = found.ids[0][found.ids[0] >= 0]
        np.testing.assert_allclose(found.scores[0, : len(matches)], expected[matches], rtol=1e-5)
        assert set(matches) == set(np.flatnonzero(expected))
