"""Text to terms: lower-cased Unicode words, as the released code's Elasticsearch mapping effectively makes them."""

import re
from dataclasses import dataclass
from functools import cached_property

import Stemmer

WORD = re.compile(r"\w+")
STOPWORDS = ("english",)  # languages whose stop words are known


@dataclass(frozen=True)
class Analyzer:
    """How texts become terms: `\\w+` runs of the lower-cased text, in order."""

    stopwords: str | None = None
    """None or "english"; the released code removes none, as None does"""
    stemmer: str | None = None
    """None or a Snowball language such as "english", applied to each distinct term"""

    def __post_init__(self) -> None:
        if self.stopwords is not None and self.stopwords not in STOPWORDS:
            raise ValueError(f"stopwords {self.stopwords!r}: allowed are None, {', '.join(map(repr, STOPWORDS))}")
        if self.stemmer is not None and self.stemmer not in Stemmer.algorithms():
            raise ValueError(f"stemmer {self.stemmer!r}: allowed are None, {', '.join(Stemmer.algorithms())}")

    @property
    def changes_words(self) -> bool:
        """Whether a term may differ from its word."""
        return self.stopwords is not None or self.stemmer is not None

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, repeats included."""
        return [term for term in self.fold(WORD.findall(text.lower())) if term is not None]

    def fold(self, words: list[str]) -> list[str | None]:
        """Return the term of each lower-cased word, None for a stop word."""
        terms = self._snowball.stemWords(words) if self.stemmer is not None else words
        return [None if word in self._dropped else term for word, term in zip(words, terms, strict=True)]

    @cached_property
    def _dropped(self) -> frozenset[str]:
        if self.stopwords is None:
            return frozenset()
        from bm25s.stopwords import STOPWORDS_EN  # here, because bm25s takes 0.3 s, which most analyzers can spare

        return frozenset(STOPWORDS_EN)

    @cached_property
    def _snowball(self) -> Stemmer.Stemmer:
        return Stemmer.Stemmer(self.stemmer)

    def __reduce__(self):
        return Analyzer, (self.stopwords, self.stemmer)  # a Snowball stemmer cannot travel
