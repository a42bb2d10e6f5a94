"""Texts to search, real ones and what generated corpora are made of, and the search of them in shards."""

import re
import unicodedata
from functools import cache
from itertools import groupby, pairwise
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
    "ภาษาไทยabc",
    "カタカナと漢字です",
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


SCRIPTS = ("CJK", "HIRAGANA", "HENTAIGANA", "KATAKANA", "HALFWIDTH KATAKANA", "COMBINING KATAKANA")
SCRIPTS += ("IDEOGRAPHIC ITERATION", "IDEOGRAPHIC CLOSING", "IDEOGRAPHIC NUMBER ZERO")
SCRIPTS += ("THAI", "LAO", "KHMER", "MYANMAR", "TAI", "NEW TAI LUE")


@cache
def is_unspaced(character):
    """Say by its name whether a character is of a script without spaces."""
    is_word = unicodedata.category(character)[0] in "LMN"
    return is_word and unicodedata.name(character, "").startswith(SCRIPTS) and character not in MARKS


MARKS = "〪〭〫〬"  # of tones, between Chinese characters: ideographic by name, and no part of the script


def words(text):
    """Return runs of word characters; in scripts without spaces every two neighbours, or what stands alone."""
    found = []
    for unspaced, characters in groupby((text or "").lower(), key=is_unspaced):
        run = "".join(characters)
        found += ([run[i : i + 2] for i in range(len(run) - 1)] or [run]) if unspaced else re.findall(r"\w+", run)
    return found


def same(a, b):
    return a.ids.tobytes() == b.ids.tobytes() and a.scores.tobytes() == b.scores.tobytes()


def cut(texts, shards):
    bounds = [len(texts) * i // shards for i in range(shards + 1)]
    return [texts[a:b] for a, b in pairwise(bounds)], bounds[:-1]


def search_shards(texts, queries, *, k, shards, analyzer=None, **settings):
    analyzer = analyzer or Analyzer()
    parts, offsets = cut(texts, shards)
    total = Statistics.merge([Statistics.collect(part, analyzer) for part in parts])
    options = {"analyzer": analyzer, "statistics": total, **settings}
    found = [search(index_passages(part, **options), queries, k=k) for part in parts]
    return merge(found, offsets=offsets, k=k)
