"""Text to terms: lower-cased Unicode words, as the released code's Elasticsearch mapping effectively makes them."""

import re
from dataclasses import dataclass
from functools import cached_property

import Stemmer
from bm25s.stopwords import STOPWORDS_EN

WORD = re.compile(r"\w+")
STOPWORDS = {"english": frozenset(STOPWORDS_EN)}


@dataclass(frozen=True)
class Analyzer:
    """How texts become terms: `\\w+` runs of the lower-cased text, in order.

    stopwords: None (the default: the released code removes none) or "english".
    stemmer: None or a Snowball language such as "english", applied to each distinct term.
    """

    stopwords: str | None = None
    stemmer: str | None = None

    def __post_init__(self) -> None:
        if self.stopwords is not None and self.stopwords not in STOPWORDS:
            raise ValueError(f"stopwords {self.stopwords!r}: allowed are None, {', '.join(map(repr, STOPWORDS))}")
        if self.stemmer is not None and self.stemmer not in Stemmer.algorithms():
            raise ValueError(f"stemmer {self.stemmer!r}: allowed are None, {', '.join(Stemmer.algorithms())}")

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, repeats included."""
        words = WORD.findall(text.lower())
        if self.stopwords is not None:
            dropped = STOPWORDS[self.stopwords]
            words = [word for word in words if word not in dropped]
        if self.stemmer is not None:
            words = self._snowball.stemWords(words)
        return words

    @cached_property
    def _snowball(self) -> Stemmer.Stemmer:
        return Stemmer.Stemmer(self.stemmer)

    def __reduce__(self):
        return Analyzer, (self.stopwords, self.stemmer)  # a Snowball stemmer cannot travel
