"""Mark the words of a query in a text, as HTML."""

from html import escape

from tlm_ray.retrieval.engine.analyzer import Analyzer, spans


def mark(text: str, terms: set[str], analyzer: Analyzer) -> str:
    """Return a text as HTML, with the words that are among the terms marked."""
    marked: list[tuple[int, int]] = []
    for start, stop in spans(text):
        if terms.intersection(analyzer.terms(text[start:stop])):
            first = marked.pop()[0] if marked and start < marked[-1][1] else start  # pairs overlap by a character
            marked.append((first, stop))
    pieces, end = [], 0
    for start, stop in marked:
        pieces += [escape(text[end:start]), f"<mark>{escape(text[start:stop])}</mark>"]
        end = stop
    return "".join(pieces) + escape(text[end:])
