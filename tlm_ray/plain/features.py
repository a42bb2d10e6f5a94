"""Sets of features of linear models, and how texts become their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tlm_ray.corpus.labelled.marks import Marks
from tlm_ray.plain.linear_model import joined
from tlm_ray.plain.terms import Terms, Vocabulary, learn

WORDS = Terms(kind="words", longest=2)
CHARACTERS = Terms(kind="characters", shortest=2, longest=5, least_texts=2)
FEATURES = {
    "words 1-2": (WORDS,),
    "words 1-3": (replace(WORDS, longest=3, least_texts=2),),
    "plain words": (Terms(kind="plain words"),),
    "plain words 1-2": (Terms(kind="plain words", longest=2),),
    "characters 2-5": (CHARACTERS,),
    "words 1-2 + characters 2-5": (WORDS, CHARACTERS),
    "windows": (Terms(kind="windows", weighting="presence"),),
    "windows by TF-IDF": (Terms(kind="windows"),),
}
MOST_CHARACTERS = 40_000_000  # of training texts, whose runs of characters take 4 GB; imdb has 26 million


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """A set of features, learned from texts."""

    vocabularies: tuple[Vocabulary, ...]
    """of each of its kinds of terms"""
    learned: Any
    """weights of the texts it was learned from, sparse (rows, terms)"""
    held: Any
    """weights of the held-out texts, likewise"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Texts to learn terms from, and held-out texts; sets of features share the kinds of terms."""

    learned: Sequence[str]
    held: Sequence[str]
    marks: Marks | None
    """of two spans in each text, for windows"""
    found: dict[Terms, tuple[Vocabulary, Any, Any] | None] = field(default_factory=dict)
    """kinds of terms that were learned, with the weights of both texts; None without terms"""

    def features(self, name: str) -> Features | None:
        """Return a set of FEATURES, without kinds that no text has; None if none is left.

        ValueError for windows of texts that do not mark two spans.
        """
        found = [each for each in map(self._learn, self._kinds(name)) if each is not None]
        if not found:
            return None
        vocabularies, learned, held = zip(*found, strict=True)
        return Features(vocabularies=vocabularies, learned=joined(learned), held=joined(held))

    def _kinds(self, name: str) -> Sequence[Terms]:
        if all(kind.kind != "windows" for kind in FEATURES[name]):
            return FEATURES[name]
        if self.marks is None:
            raise ValueError(
                "split train: no two kinds of brackets mark a span each in 95 % of the texts; take TfIdf()"
            )
        return [replace(kind, marks=self.marks) for kind in FEATURES[name]]

    def _learn(self, kind: Terms) -> tuple[Vocabulary, Any, Any] | None:
        if kind not in self.found:
            own = learn(kind, self.learned)
            self.found[kind] = own and (*own, own[0].rows(self.held))
        return self.found[kind]


def too_large(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the sets of features that are too large for this much text, if others remain."""
    is_large = sum(map(len, texts)) > MOST_CHARACTERS
    found = [name for name in names if is_large and CHARACTERS in FEATURES[name]]
    return found if len(found) < len(names) else []
