"""Find the brackets that mark the two spans that a label is about, as in SciERC, ChemProt and SemEval-2010.

The brackets are detected in the texts, never hard-coded.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MIRRORED = {"[": "]", "<": ">", "{": "}", "(": ")"}
SHARE = 0.95  # share of the texts that must have both kinds of brackets: 100 % in SciERC, 99.5 % in ChemProt
_BRACKET = re.compile(r"</?\w+>|\[+|\]+|<+|>+|\{+|\}+|\(+|\)+")  # tags such as <e1>, and runs such as [[

Pair = tuple[str, str]  # opening and closing bracket of a span


@dataclass(frozen=True)
class Marks:
    """The brackets of two kinds of spans; nearly every text has each bracket once."""

    first: Pair
    second: Pair

    @property
    def signs(self) -> tuple[str, str, str, str]:
        """All four brackets."""
        return (*self.first, *self.second)

    def removed(self, text: str) -> str:
        """Return a text without brackets and with single spaces; equal for texts that differ only in marked spans."""
        for sign in self.signs:
            text = text.replace(sign, " ")
        return " ".join(text.split())


def marks_of(texts: Sequence[str]) -> Marks | None:
    """Return the two kinds of brackets that 95 % of the texts have once each; None unless there are exactly two."""
    found = Counter(pair for text in texts for pair in _pairs(text))
    common = sorted(pair for pair, count in found.items() if count >= SHARE * len(texts))
    return Marks(*common) if len(common) == 2 else None


def tags_of(texts: Sequence[str]) -> Marks | None:
    """Return the marks of texts if they are tags, such as <e1>, whose names count as words; None for other brackets."""
    if sum("</" in text for text in texts) < SHARE * len(texts):  # spares most tasks the search for brackets
        return None
    marks = marks_of(texts)
    return marks if marks and any(sign.startswith("</") for sign in marks.signs) else None


def _pairs(text: str) -> list[Pair]:
    """Return the pairs of brackets that a text has once each, the opening one first."""
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
    """Return the closing bracket of an opening one; None for any other sign."""
    if sign.startswith("<") and sign.endswith(">"):
        return None if sign.startswith("</") else f"</{sign[1:]}"
    return MIRRORED[sign[0]] * len(sign) if sign[0] in MIRRORED else None
