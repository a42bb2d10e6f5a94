"""Marked spans: texts in which brackets of two kinds say which two spans a label is about, as SciERC and ChemProt have.

The brackets are found in the texts, never named.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MIRRORED = {"[": "]", "<": ">", "{": "}", "(": ")"}
SHARE = 0.95  # of the texts must have both kinds: 100 % of SciERC's have them, 99.5 % of ChemProt's
_BRACKET = re.compile(r"</?\w+>|\[+|\]+|<+|>+|\{+|\}+|\(+|\)+")  # tags such as <e1>, and runs such as [[

Pair = tuple[str, str]  # what opens a span and what closes it


@dataclass(frozen=True)
class Marks:
    """The brackets of two kinds of spans, each of which stands once in nearly every text."""

    first: Pair
    second: Pair

    @property
    def signs(self) -> tuple[str, str, str, str]:
        """All four brackets."""
        return (*self.first, *self.second)

    def removed(self, text: str) -> str:
        """Return a text without its marks, its white space folded: what texts that mark other spans have in common."""
        for sign in self.signs:
            text = text.replace(sign, " ")
        return " ".join(text.split())


def marks_of(texts: Sequence[str]) -> Marks | None:
    """Find the two kinds of brackets that stand once each in 95 % of the texts; None where there are not two."""
    found = Counter(pair for text in texts for pair in _pairs(text))
    common = sorted(pair for pair, count in found.items() if count >= SHARE * len(texts))
    return Marks(*common) if len(common) == 2 else None


def _pairs(text: str) -> list[Pair]:
    """Return the brackets that stand once in a text and are closed once, after they were opened."""
    places: dict[str, list[int]] = {}
    for match in _BRACKET.finditer(text):
        places.setdefault(match[0], []).append(match.start())
    closed = ((sign, _closes(sign)) for sign in places)
    return [
        (sign, end)
        for sign, end in closed
        if end in places and len(places[sign]) == len(places[end]) == 1 and places[sign] < places[end]
    ]


def _closes(sign: str) -> str | None:
    """Return what closes a bracket, None where it opens nothing."""
    if sign.startswith("<") and sign.endswith(">"):
        return None if sign.startswith("</") else f"</{sign[1:]}"
    return MIRRORED[sign[0]] * len(sign) if sign[0] in MIRRORED else None
