"""Extract terms in, between and around the two marked spans that a label is about.

A bag of such windows is the usual linear model of relation extraction (Zhou et al. 2005, GuoDong's features without a
parser); a bag of words cannot say which two spans are meant.
"""

import re
from collections.abc import Iterator

from tlm_ray.corpus.labelled.marks import Marks, Pair
from tlm_ray.plain.lexing import tokens

LONGEST = 3  # words of a run
ASIDE = 3  # words to the left of the first span, and to the right of the last
FARTHEST = 12  # words between the spans that are distinguished; all greater distances are one term
SHORT = 6  # words between the spans that are one term as a whole

Place = tuple[int, int]  # of a span's opening and closing mark among the tokens


def windows(text: str, *, marks: Marks) -> list[str]:
    """Return the terms of a text; only its words, as "word ...", if a span is missing."""
    found = _tokens(text, marks)
    words = [f"word {token}" for token in found if token not in marks.signs]
    first, second = (_place(found, pair) for pair in (marks.first, marks.second))
    if first is None or second is None:
        return words
    return [*words, *_around(found, first, second), *_inside(found[slice(*first)][1:], found[slice(*second)][1:])]


def _tokens(text: str, marks: Marks) -> list[str]:
    """Return a text's words and signs, each mark as one token."""
    parts = re.split(f"({'|'.join(map(re.escape, sorted(marks.signs, key=len, reverse=True)))})", text)
    return [token for part in parts for token in ([part] if part in marks.signs else tokens(part.lower()))]


def _place(found: list[str], pair: Pair) -> Place | None:
    """Return the positions of a span's marks; None if one is missing or their order is wrong."""
    if pair[0] not in found or pair[1] not in found:
        return None
    place = found.index(pair[0]), found.index(pair[1])
    return place if place[0] < place[1] else None


def _around(found: list[str], first: Place, second: Place) -> Iterator[str]:
    """Yield the words between and beside the spans, also combined with the kind of the first span."""
    (start, end), (next_start, last) = sorted([first, second])
    order = "first" if first < second else "second"  # which kind
    between = found[min(end, next_start) + 1 : next_start]
    sides = {"between": between, "left": found[max(0, start - ASIDE) : start], "right": found[last + 1 :][:ASIDE]}
    terms = [f"{side} {run}" for side, words in sides.items() for run in _runs(words)]
    terms += [f"distance {min(len(between), FARTHEST)}"]
    terms += [f"all between {' '.join(between)}"] if len(between) <= SHORT else []
    yield f"{order} first"
    for term in terms:
        yield from (term, f"{order} first: {term}")


def _inside(first: list[str], second: list[str]) -> Iterator[str]:
    """Yield the words of each span, its last word, usually its head, all of it, and both last words together."""
    for kind, span in (("first", first), ("second", second)):
        yield from (f"in {kind} {word}" for word in span)
        yield f"all of {kind} {' '.join(span)}"
        yield f"last of {kind} {' '.join(span[-1:])}"
    yield f"last of both {' '.join(first[-1:])} / {' '.join(second[-1:])}"


def _runs(words: list[str]) -> Iterator[str]:
    for length in range(1, LONGEST + 1):
        yield from (" ".join(words[start : start + length]) for start in range(len(words) - length + 1))
