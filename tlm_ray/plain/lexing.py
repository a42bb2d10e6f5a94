"""Split a text into words and signs for linear models."""

import re

from tlm_ray.retrieval.engine import analyzer


def tokens(text: str) -> list[str]:
    """Return words and single signs in order; pairs of characters for scripts without spaces."""
    if text.isascii():
        return re.findall(r"\w+|[^\w\s]", text)
    found, end = [], 0
    for start, stop in analyzer.spans(text):
        found += [*_signs(text[end:start]), text[start:stop]]
        end = stop
    return found + _signs(text[end:])


def _signs(text: str) -> list[str]:
    return list("".join(text.split()))


def plain_words(text: str) -> list[str]:
    """Return words of two characters or more, as scikit-learn does; pairs for scripts without spaces."""
    return [word for word in analyzer.words(text) if len(word) > 1]
