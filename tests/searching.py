"""Texts to search, real ones and what generated corpora are made of, and the search of them in shards."""

import re
from itertools import pairwise
from pydoc_data.topics import topics

from hypothesis import strategies as st

from tlm_ray.retrieval import Analyzer, Statistics, index_passages, merge, search

REAL = [text.strip() for _, topic in sorted(topics.items()) for text in topic.split("\n\n") if text.strip()]
WORDS = [
    "a",
    "b",
    "B",
    "c",
    "the",
    "語",
    "日本 語",
    "кот",
    "Straße",
    "İ",
    "e\u0301",
    "naïve",
    "हिन्दी",
    "😀",
    "x_1",
    "42",
    "...",
    "",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
CORPORA = st.lists(TEXTS | st.none(), min_size=1, max_size=14)


def words(text):
    return re.findall(r"\w+", (text or "").lower())


def same(a, b):
    return a.ids.tobytes() == b.ids.tobytes() and a.scores.tobytes() == b.scores.tobytes()


def cut(texts, shards):
    bounds = [len(texts) * i // shards for i in range(shards + 1)]
    return [texts[a:b] for a, b in pairwise(bounds)], bounds[:-1]


def search_shards(texts, queries, *, k, shards, analyzer=None):
    analyzer = analyzer or Analyzer()
    parts, offsets = cut(texts, shards)
    total = Statistics.merge([Statistics.collect(part, analyzer) for part in parts])
    found = [search(index_passages(part, analyzer=analyzer, statistics=total), queries, k=k) for part in parts]
    return merge(found, offsets=offsets, k=k)
