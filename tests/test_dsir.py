"""Importance resampling against its definition in plain Python, and its noise against Gumbel's distribution."""

import re
import zlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tlm_ray.retrieval.methods import dsir

TEXTS = st.lists(st.lists(st.sampled_from(["a", "B", "cat", "é", "...", "x_1"]), max_size=9).map(" ".join), max_size=6)


def features(text):
    """The buckets of a text by the definition: each word's, and each neighbouring pair's."""
    words = [zlib.crc32(word.encode()) for word in re.findall(r"\w+", (text or "").lower())]
    pairs = [dsir._pair(np.uint64(a), np.uint64(b)) for a, b in pairwise(words)]
    return Counter([*(word % dsir.BUCKETS for word in words), *map(int, pairs)])


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_buckets_count_words_and_pairs_within_a_text(texts):
    expected = sum(map(features, texts), Counter())
    counts = dsir.count_buckets(texts)
    assert {i: int(counts[i]) for i in np.flatnonzero(counts)} == dict(expected)


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_a_weight_is_the_log_of_the_ratio_of_likelihoods(task, corpus, texts):
    shares = []
    for counts in (sum(map(features, part), Counter()) for part in (task, corpus)):
        shares.append({i: counts[i] / max(1, counts.total()) + 1e-8 for i in range(dsir.BUCKETS)})
    expected = [sum(n * np.log(shares[0][i] / shares[1][i]) for i, n in features(text).items()) for text in texts]
    ratio = dsir.log_ratio(dsir.count_buckets(task), dsir.count_buckets(corpus))
    np.testing.assert_allclose(dsir.log_weights(texts, ratio), expected, rtol=1e-9, atol=1e-9)


def test_pairs_have_an_order_and_spread_over_the_buckets():
    words = [np.uint64(zlib.crc32(str(i).encode())) for i in range(300)]
    assert dsir._pair(words[0], words[1]) != dsir._pair(words[1], words[0])
    counts = np.bincount([int(dsir._pair(a, b)) for a in words for b in words], minlength=dsir.BUCKETS)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_text_weighs_the_same_in_any_company():
    texts = [f"w{i % 7} w{i % 11} w{i}" for i in range(100)]
    ratio = np.random.default_rng(0).normal(size=dsir.BUCKETS)
    whole = dsir.log_weights(texts, ratio)
    assert (
        whole.tobytes()
        == np.concatenate([dsir.log_weights(texts[:37], ratio), dsir.log_weights(texts[37:], ratio)]).tobytes()
    )


def test_noise_is_gumbels_and_keyed_by_passage_and_seed():
    passages = np.arange(20_000)
    noise = dsir.gumbel(passages, seed=0)
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > 1e-3
    assert (dsir.gumbel(passages[7:9], seed=0) == noise[7:9]).all()
    assert abs(np.corrcoef(noise, dsir.gumbel(passages, seed=1))[0, 1]) < 0.03
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_noisy_weights_are_a_draw_in_proportion_to_the_weights(seed):
    weights = np.log([0.7, 0.2, 0.1])
    draws = np.arange(9_000).reshape(-1, 3)
    first = np.argmax(weights + dsir.gumbel(draws.ravel(), seed=seed).reshape(-1, 3), axis=1)
    np.testing.assert_allclose(np.bincount(first) / 3_000, [0.7, 0.2, 0.1], atol=0.04)
