"""What is indexed: any kind and size of text, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest
from searching import same, search_shards

from tlm_ray.retrieval import Analyzer, Statistics, index_passages, search


def test_more_shards_than_rows_of_an_arrow_array():
    array = pa.array(["a b", "b"])
    assert index_passages(array[2:2]).size == 0
    assert same(search_shards(array, ["b a"], k=3, shards=5), search(index_passages(array), ["b a"], k=3))


def test_other_arrow_types_of_strings_are_read_and_bytes_that_are_none_refused():
    texts = ["a b", None, "b c"]
    expected = search(index_passages(texts), ["b"], k=3)
    for array in (pa.array(texts, pa.string_view()), pa.array(texts).dictionary_encode()):
        assert same(search(index_passages(array), ["b"], k=3), expected)
    with pytest.raises(ValueError, match="UTF8"):
        index_passages(pa.array([b"ab \xf3"], pa.binary()))


def test_more_than_two_gib_of_text_is_indexed():
    chunk = pa.array(["x" * (1 << 20)] * 64)  # 33 times the same buffer
    texts = pa.chunked_array([chunk] * 33 + [pa.array(["rare"])])
    assert texts.nbytes > 2**31
    assert search(index_passages(texts), ["rare"], k=2).ids.tolist() == [[33 * 64, -1]]


def test_arrow_arrays_and_nulls_are_lists_and_empty_passages():
    texts = ["a b", None, "", "b c b", None, "ü 語"]
    plain = [text or "" for text in texts]
    chunks = pa.chunked_array([texts[:2], texts[2:]], pa.string())
    expected = search(index_passages(plain), ["b", "語", "a c"], k=4)
    for given_texts in (
        texts,
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        chunks,
        pa.array([None, *texts])[1:],
    ):
        index = index_passages(given_texts)
        assert index.size == len(texts)
        assert same(search(index, ["b", "語", "a c"], k=4), expected)
        assert Statistics.collect(given_texts, Analyzer()) == Statistics.collect(plain, Analyzer())


@pytest.mark.parametrize("texts", [[], [""], ["...", None, "😀"]])
def test_a_corpus_without_words_matches_nothing(texts):
    found = search(index_passages(texts), ["a", ""], k=3)
    assert (found.ids == -1).all() and (found.scores == 0).all()
    assert found.ids.shape == (2, 3)


@pytest.mark.parametrize("allowed", [np.ones(2, bool), np.ones(4, bool), np.ones(3, int), np.ones((3, 1), bool)])
def test_a_mask_of_another_shape_is_refused(allowed):
    with pytest.raises(ValueError, match=r"allowed: .* must be bool \(3,\)"):
        search(index_passages(["a", "b", "c"]), ["a"], k=1, allowed=allowed)


def test_statistics_that_lack_a_term_are_refused():
    statistics = Statistics.collect(["a b"], Analyzer())
    with pytest.raises(ValueError, match="lack the term 'c'; collect them over all shards"):
        index_passages(["a c"], statistics=statistics)
