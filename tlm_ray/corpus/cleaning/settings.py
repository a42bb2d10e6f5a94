"""Settings of cleaning, as a part of a recipe."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Which pages and lines of a corpus are kept; the defaults are those of C4's final paper (Raffel et al. 2020)."""

    sentences: int = 3
    """fewest sentences of a page, once its lines are filtered; 5 in the paper's first version, 0 keeps every page"""
    words: int = 5
    """fewest words of a line; 3 in the paper's first version"""
    letters: int = 1000
    """most characters of a word"""
    bad_words: tuple[str, ...] = ()
    """words and phrases, in lower case; a page with one of them is dropped"""
    language: str = ""
    """ISO 639-1 code of the language to keep, such as en; "" keeps all"""
    certainty: float = 0.99
    """smallest probability of that language (C4 takes 0.99)"""
    span: int = 3
    """sentences per span; of equal spans in the corpus the first is kept, 0 keeps all"""
    near: float = 0.0
    """Jaccard similarity of two pages' word 5-grams from which the later one is dropped, such as 0.8; 0 keeps all"""

    def __post_init__(self) -> None:
        for name, least in (("sentences", 0), ("words", 0), ("letters", 1), ("span", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"cleaning {name} {value!r}: must be a whole number of {least} or more")
        if not 0 < self.certainty <= 1:
            raise ValueError(f"cleaning certainty {self.certainty!r}: must be above 0 and at most 1, a probability")
        if not 0 <= self.near < 1:
            raise ValueError(f"cleaning near {self.near!r}: must be 0 (off), or below 1 such as 0.8, a similarity")
        if not isinstance(self.bad_words, tuple):
            raise ValueError(f"cleaning bad_words {self.bad_words!r}: must be a tuple, such as ('darn',)")
        if wrong := [word for word in self.bad_words if word != word.lower().strip() or not word]:
            raise ValueError(f"cleaning bad_words {wrong[0]!r}: must be in lower case, without spaces at its ends")
