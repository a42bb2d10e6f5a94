"""RAKE: replace long texts by their key phrases as queries (Rose, Engel, Cramer and Cowley 2010).

The released code has it behind a flag and searches with the 20 best phrases; the paper mentions it for Helpfulness. A
query of 20 phrases has about 40 words, for any text length.
"""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from tlm_ray.retrieval.methods.bm25 import Bm25

PHRASES = 20
PIECES = re.compile(r"(\w+)|[^\w\s]+")  # matches a word; for punctuation the group is ""


@dataclass(frozen=True, kw_only=True)
class Rake(Bm25):
    """BM25 with the key phrases of each training text as its query."""

    name: ClassVar[str] = "rake"

    def queries(self, texts: list[str]) -> list[str]:
        """Return the key phrases of each text."""
        return [key_phrases(text) for text in texts]


def key_phrases(text: str, *, phrases: int = PHRASES) -> str:
    """Return the best phrases of a text, joined by spaces; the text itself if it has none.

    A phrase is a maximal run of words without stop words or punctuation. A word's score is the mean length of its
    phrases, in words. A phrase's score is the sum over its words. Ties go to the later phrase in the alphabet, as in
    rake-nltk. Stop words are scikit-learn's, where rake-nltk has NLTK's, which must be downloaded.
    """
    found = _phrases(text)
    uses = Counter(word for phrase in found for word in phrase)
    degree: Counter[str] = Counter()
    for phrase in found:
        for word in phrase:
            degree[word] += len(phrase)
    scored = [(sum(degree[word] / uses[word] for word in phrase), " ".join(phrase)) for phrase in found]
    return " ".join(phrase for _, phrase in sorted(scored, reverse=True)[:phrases]) or text


def _phrases(text: str) -> list[list[str]]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # imported here, because it takes 1 s

    words = PIECES.findall(text.lower())
    runs = groupby(words, lambda word: bool(word) and word not in ENGLISH_STOP_WORDS)
    return [list(run) for is_phrase, run in runs if is_phrase]
