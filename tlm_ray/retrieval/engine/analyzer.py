"""Split text into terms: lower-cased Unicode words, nearly as the released code's Elasticsearch mapping does.

Elasticsearch's standard tokenizer (UAX 29) keeps "don't" and "3.5" whole, and cuts Chinese into single characters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import Stemmer

from tlm_ray.retrieval.engine.scripts import unspaced_class

STOPWORDS = ("english",)  # languages whose stop words are known


@dataclass(frozen=True)
class Analyzer:
    """Splits texts into terms: `\\w+` runs of the lower-cased text, and character pairs in scripts without spaces."""

    stopwords: str | None = None
    """None or "english"; None removes no stop words, like the released code"""
    stemmer: str | None = None
    """None or a Snowball language such as "english", applied to each distinct term"""

    def __post_init__(self) -> None:
        if self.stopwords is not None and self.stopwords not in STOPWORDS:
            raise ValueError(f"stopwords {self.stopwords!r}: allowed are None, {', '.join(map(repr, STOPWORDS))}")
        if self.stemmer is not None and self.stemmer not in Stemmer.algorithms():
            raise ValueError(f"stemmer {self.stemmer!r}: allowed are None, {', '.join(Stemmer.algorithms())}")

    @property
    def changes_words(self) -> bool:
        """Whether a term may differ from its word (stop words or stemming)."""
        return self.stopwords is not None or self.stemmer is not None

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, repeats included."""
        return [term for term in self.fold(words(text.lower())) if term is not None]

    def fold(self, words: list[str]) -> list[str | None]:
        """Return the term of each lower-cased word, None for a stop word."""
        terms = self._snowball.stemWords(words) if self.stemmer is not None else words
        return [None if word in self._dropped else term for word, term in zip(words, terms, strict=True)]

    @cached_property
    def _dropped(self) -> frozenset[str]:
        if self.stopwords is None:
            return frozenset()
        from bm25s.stopwords import (
            STOPWORDS_EN,
        )  # imported here, because bm25s takes 0.3 s and most analyzers do not need it

        return frozenset(STOPWORDS_EN)

    @cached_property
    def _snowball(self) -> Stemmer.Stemmer:
        return Stemmer.Stemmer(self.stemmer)

    def __reduce__(self):
        return Analyzer, (self.stopwords, self.stemmer)  # a Snowball stemmer cannot be serialised


def words(text: str) -> list[str]:
    """Return the words of a text in order; in scripts without spaces, pairs of neighbouring characters."""
    return re.findall(r"\w+", text) if text.isascii() else [text[start:stop] for start, stop in spans(text)]


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each word of a text."""
    for match in _pattern().finditer(text):
        start, stop = match.span()
        if match[1] and stop - start > 2:
            yield from ((first, first + 2) for first in range(start, stop - 1))
        else:
            yield start, stop


@cache
def _pattern() -> re.Pattern[str]:
    """Return a pattern for words, with a group for runs of characters of scripts without spaces."""
    return re.compile(rf"([{unspaced_class()}]+)|[^\W{unspaced_class()}]+")
