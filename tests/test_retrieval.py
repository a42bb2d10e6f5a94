"""BM25: the scores of bm25s and of a plain reference, the same bytes however the corpus is cut and searched."""

import math
from collections import Counter
from itertools import pairwise

import bm25s
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import CORPORA, REAL, TEXTS, cut, same, search_shards, words

from tlm_ray.retrieval import Analyzer, Statistics, TopK, index_passages, merge, search

QUERIES = [
    "How is a generator resumed after it yields a value?",
    "the the the of of a",
    "attribute attribute attribute lookup order",
    "nothinglikethis",
    "",
    "... --- ...",
    " ".join(REAL[100:140]),
    *REAL[::311],
]
K1, B = 1.2, 0.75


def reference(texts, query, k1=K1):
    """BM25 as Lucene has it, from its formula: passage -> score of every passage that shares a word."""
    bags = [Counter(words(text)) for text in texts]
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = {}
    for word, repeats in Counter(words(query)).items():
        df = sum(word in bag for bag in bags)
        idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
        for i, bag in enumerate(bags):
            if word in bag:
                tf = bag[word] / (bag[word] + k1 * (1 - B + B * bag.total() / mean))
                scores[i] = scores.get(i, 0) + repeats * idf * tf
    return scores


def check(ids, scores, expected, k, rtol=1e-5):
    """Hold one query's ranking against the score of every passage that matches."""
    order = sorted(expected, key=lambda i: (-expected[i], i))
    count = min(k, len(expected))
    assert (ids[count:] == -1).all() and (scores[count:] == 0).all()
    ids, scores = ids[:count].tolist(), scores[:count]
    assert len(set(ids)) == count and set(ids) <= set(expected)
    np.testing.assert_allclose(scores, [expected[i] for i in ids], rtol)
    np.testing.assert_allclose(scores, [expected[i] for i in order[:count]], rtol)
    for rank, i in enumerate(order[:count]):
        near = [expected[j] for j in (*order[max(0, rank - 1) : rank], *order[rank + 1 : rank + 2])]
        if all(abs(score - expected[i]) > rtol * expected[i] for score in near):
            assert ids[rank] == i
    for (a, i), (b, j) in pairwise(zip(scores.tolist(), ids, strict=True)):
        assert a > b or (a == b and i < j)


@pytest.fixture(scope="module")
def real():
    return index_passages(REAL)


@pytest.fixture(scope="module")
def oracle():
    tokens = bm25s.tokenize(REAL, token_pattern=r"\w+", stopwords=None, return_ids=False, show_progress=False)
    made = bm25s.BM25(k1=K1, b=B, method="lucene")
    made.index(tokens, show_progress=False)
    return made


@pytest.mark.parametrize("k", [1, 50, 20_000])
def test_scores_and_ids_are_those_of_bm25s(real, oracle, k):
    found = search(real, QUERIES, k=k)
    assert found.ids.shape == found.scores.shape == (len(QUERIES), k)
    assert (found.ids.dtype, found.scores.dtype) == (np.int64, np.float32)
    for query, ids, scores in zip(QUERIES, found.ids, found.scores, strict=True):
        known = [word for word in words(query) if word in oracle.vocab_dict]
        dense = oracle.get_scores(known) if known else np.zeros(0)
        check(ids, scores, {int(i): float(dense[i]) for i in np.flatnonzero(dense)}, k)


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.75), (0.1, 0.5), (0.9, 0.4), (2.0, 0.0), (3.0, 1.0)])
def test_other_settings_give_the_scores_of_bm25s_with_them(k1, b):
    tokens = bm25s.tokenize(REAL, token_pattern=r"\w+", stopwords=None, return_ids=False, show_progress=False)
    made = bm25s.BM25(k1=k1, b=b, method="lucene")
    made.index(tokens, show_progress=False)
    best = search(index_passages(REAL, k1=k1, b=b), QUERIES, k=20)
    for query, ids, scores in zip(QUERIES, best.ids, best.scores, strict=True):
        expected = made.get_scores(words(query)) if words(query) else np.zeros(len(REAL))
        found = ids >= 0
        np.testing.assert_allclose(scores[found], expected[ids[found]], rtol=1e-5)
        np.testing.assert_allclose(scores[found], np.sort(expected)[::-1][: found.sum()], rtol=1e-5)


@settings(max_examples=200, deadline=None)
@given(CORPORA, st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 20))
def test_scores_and_ids_are_those_of_the_formula(texts, queries, k):
    found = search(index_passages(texts), queries, k=k)
    assert found.ids.shape == (len(queries), k)
    for query, ids, scores in zip(queries, found.ids, found.scores, strict=True):
        check(ids, scores, reference(texts, query), k)


@settings(max_examples=200, deadline=None)
@given(CORPORA, st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 5))
def test_without_k1_only_the_presence_of_a_word_counts(texts, queries, k, shards):
    found = search_shards(texts, queries, k=k, shards=shards, k1=0)
    assert found.ids.shape == (len(queries), k)
    for query, ids, scores in zip(queries, found.ids, found.scores, strict=True):
        check(ids, scores, reference(texts, query, k1=0), k)


@settings(max_examples=100, deadline=None)
@given(CORPORA, st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 20), st.integers(2, 20))
def test_shards_do_not_show_in_any_small_corpus(texts, queries, k, shards):
    assert same(search_shards(texts, queries, k=k, shards=shards), search(index_passages(texts), queries, k=k))


@pytest.mark.parametrize("shards", [1, 2, 7, 16])
@pytest.mark.parametrize("analyzer", [Analyzer(), Analyzer("english", "english")], ids=["plain", "stemmed"])
def test_shards_do_not_show_in_real_text(shards, analyzer):
    whole = search(index_passages(REAL, analyzer=analyzer), QUERIES, k=300)
    assert same(search_shards(REAL, QUERIES, k=300, shards=shards, analyzer=analyzer), whole)


def test_shards_of_their_own_statistics_would_show():
    parts, offsets = cut(REAL, 7)
    found = merge([search(index_passages(part), QUERIES, k=50) for part in parts], offsets=offsets, k=50)
    assert not same(found, search(index_passages(REAL), QUERIES, k=50))


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_threads_do_not_show(real, threads):
    assert same(search(real, QUERIES, k=100, threads=threads), search(real, QUERIES, k=100))


@settings(max_examples=100, deadline=None)
@given(CORPORA, st.lists(TEXTS, min_size=1, max_size=2), st.integers(1, 8), st.integers(0, 8))
def test_a_smaller_k_is_a_prefix(texts, queries, k, more):
    index = index_passages(texts)
    small, large = search(index, queries, k=k), search(index, queries, k=k + more)
    assert same(small, TopK(large.ids[:, :k].copy(), large.scores[:, :k].copy()))


def test_the_order_of_queries_and_their_words_does_not_show(real):
    backwards = [" ".join(reversed(words(query))) for query in reversed(QUERIES)]
    found, plain = search(real, backwards, k=100), search(real, QUERIES, k=100)
    assert same(TopK(found.ids[::-1], found.scores[::-1]), plain)


@pytest.mark.parametrize("k", [1, 99, 100, 101])
def test_ties_are_broken_by_passage_id(k):
    texts = ["same words here", "other text"] * 100
    found = search(index_passages(texts), ["words"], k=k)
    count = min(k, 100)
    assert found.ids[0, :count].tolist() == list(range(0, 2 * count, 2))
    assert len(set(found.scores[0, :count].tolist())) == 1


@pytest.mark.parametrize("shards", [1, 3, 16])
def test_ties_across_shards_are_broken_by_passage_id(shards):
    texts = ["b a", "c"] * 20 + ["a b"] * 10
    found = search_shards(texts, ["a", "a b"], k=25, shards=shards)
    assert found.ids.tolist() == [[*range(0, 40, 2), *range(40, 45)]] * 2


@pytest.mark.parametrize("k", [1, 20, 300])
def test_a_floor_that_other_shards_have_reached_does_not_show(k):
    total = Statistics.collect(REAL, Analyzer())
    found, offsets = [], []
    for part, offset in zip(*cut(REAL, 9), strict=True):
        scores = np.concatenate([np.zeros((len(QUERIES), k), np.float32), *(top.scores for top in found)], axis=1)
        floor = np.sort(scores, axis=1)[:, -k]
        found.append(search(index_passages(part, statistics=total), QUERIES, k=k, floor=floor))
        offsets.append(offset)
    assert same(merge(found, offsets=offsets, k=k), search(index_passages(REAL), QUERIES, k=k))
    assert sum((top.ids >= 0).sum() for top in found) < sum(
        (search(index_passages(part, statistics=total), QUERIES, k=k).ids >= 0).sum() for part in cut(REAL, 9)[0]
    )


@pytest.fixture(scope="module")
def windows():
    """20,000 short passages of words as frequent as in text: three windows of the kernel, and queries of them."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, (20_000, 12)), 5_000)
    texts = [" ".join(f"w{word}" for word in row[: 3 + i % 10]) for i, row in enumerate(words)]
    return texts, [" ".join(f"w{word}" for word in row) for row in np.minimum(rng.zipf(1.3, (20, 9)), 5_000)]


def test_a_score_is_the_order_even_where_sums_round_to_one_score(windows):
    texts, queries = windows
    found = search(index_passages(texts), queries, k=len(texts))
    for ids, scores in zip(found.ids, found.scores, strict=True):
        matches = ids >= 0
        order = np.lexsort((ids[matches], -scores[matches]))
        assert (order == np.arange(len(order))).all()
    for query, ids, scores in zip(queries[:3], found.ids, found.scores, strict=False):
        check(ids, scores, reference(texts, query), len(texts))


@pytest.mark.parametrize("k", [1, 10, 300, 4_000])
def test_windows_and_shards_do_not_show(windows, k):
    texts, queries = windows
    whole = search(index_passages(texts), queries, k=len(texts))
    prefix = TopK(whole.ids[:, :k].copy(), whole.scores[:, :k].copy())
    assert same(search(index_passages(texts), queries, k=k), prefix)
    for shards in (2, 7, 16):
        assert same(search_shards(texts, queries, k=k, shards=shards), prefix)
    for k_th in (whole.scores[:, k - 1], whole.scores[:, k - 1] * np.float32(0.9)):
        assert same(search(index_passages(texts), queries, k=k, floor=k_th), prefix)


def test_a_floor_keeps_the_passages_that_lie_on_it():
    index = index_passages(["a b", "a b", "c"] * 20)
    scores = search(index, ["a", "c"], k=60).scores
    found = search(index, ["a", "c"], k=60, floor=scores[:, 0].copy())
    assert (found.ids >= 0).sum(axis=1).tolist() == [40, 20]


def test_a_word_in_every_passage_still_counts():
    found = search(index_passages(["a", "a b", "a a"]), ["a"], k=3)
    assert sorted(found.ids[0].tolist()) == [0, 1, 2]
    assert (found.scores > 0).all()


def test_no_queries_have_no_neighbours(real):
    assert search(real, [], k=3, threads=2).ids.shape == (0, 3)


def test_a_text_of_a_megabyte_is_a_passage_and_a_query():
    long = " ".join(f"w{i % 5000} common" for i in range(80_000))
    texts = ["common w1", long, "w17 w4999", "nothing"]
    assert len(long) > 1_000_000
    found = search(index_passages(texts), [long, "w17 common"], k=4)
    for query, ids, scores in zip([long, "w17 common"], found.ids, found.scores, strict=True):
        check(ids, scores, reference(texts, query), 4, rtol=1e-3)  # 160,000 words leave a sum few bits below 1


def test_passages_that_are_not_allowed_are_left_out_before_ranking(real):
    allowed = np.random.default_rng(0).random(len(REAL)) < 0.5
    found, every = search(real, QUERIES, k=40, allowed=allowed), search(real, QUERIES, k=len(REAL))
    for ids, scores, all_ids, all_scores in zip(found.ids, found.scores, every.ids, every.scores, strict=True):
        keep = np.flatnonzero((all_ids >= 0) & allowed[all_ids])[:40]
        assert ids[: len(keep)].tolist() == all_ids[keep].tolist()
        assert scores[: len(keep)].tobytes() == all_scores[keep].tobytes()
        assert (ids[len(keep) :] == -1).all()
    assert (search(real, QUERIES, k=3, allowed=np.zeros(len(REAL), bool)).ids == -1).all()


@pytest.mark.parametrize(("name", "value"), [("k", 0), ("k", -1), ("threads", 0)])
def test_numbers_below_one_are_refused(real, name, value):
    with pytest.raises(ValueError, match=f"{name} {value}: must be a whole number of 1 or more"):
        search(real, ["a"], **({"k": 1} | {name: value}))


def test_an_index_of_the_queries_terms_alone_finds_the_same(real):
    for analyzer in (Analyzer(), Analyzer("english", "english")):
        terms = pa.array(sorted({term for query in QUERIES for term in analyzer.terms(query)} | {"unknownterm"}))
        small = index_passages(REAL, analyzer=analyzer, only=terms)
        assert small.terms.equals(terms)
        assert same(search(small, QUERIES, k=30), search(index_passages(REAL, analyzer=analyzer), QUERIES, k=30))


def test_merge_refuses_what_it_cannot_merge(real):
    part = search(real, ["generator"], k=2)
    for parts, offsets in (([], []), ([part], [0, 5])):
        with pytest.raises(ValueError, match="give one or more parts, and one offset per part"):
            merge(parts, offsets=offsets, k=2)
    with pytest.raises(ValueError, match="k 0: must be a whole number of 1 or more"):
        merge([part], offsets=[0], k=0)


def test_merge_takes_parts_of_any_k_and_pads(real):
    small, large = search(real, QUERIES, k=2), search(real, QUERIES, k=5)
    found = merge([small, large], offsets=[0, len(REAL)], k=9)
    assert found.ids.shape == (len(QUERIES), 9)
    assert (found.ids.dtype, found.scores.dtype) == (np.int64, np.float32)
    for ids, a, b in zip(found.ids, small.ids, large.ids, strict=True):
        assert set(ids[ids >= 0]) == {*a[a >= 0], *(b[b >= 0] + len(REAL))}
