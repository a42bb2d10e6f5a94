"""Spans of sentences that occur in a corpus more than once; the first is kept (Raffel et al. 2020, section 2.2).

A span is a run of sentences of one page, over the ends of its lines. Two are equal if their words are, in lower case.
Each sentence of a repeated span is dropped. Pages with fewer sentences have no span.
"""

import hashlib

import numpy as np

from tlm_ray.corpus.general.splitting import sentences_of

KEY_BYTES = 16  # of 10^10 spans, two different ones have equal keys with a probability of 10^-19


def span_keys(page: str, span: int) -> list[bytes]:
    """Return the key of each span of a page, in order."""
    words = [" ".join(sentence.lower().split()) for line in page.split("\n") for sentence in sentences_of(line)]
    return [
        hashlib.blake2b("\n".join(words[i : i + span]).encode(), digest_size=KEY_BYTES).digest()
        for i in range(len(words) - span + 1)
    ]


def without_spans(page: str, repeated: np.ndarray, spans: int, span: int) -> str:
    """Return a page without the sentences of its repeated spans; lines without one stay as they are.

    repeated: the numbers of those spans among the page's. spans: number of the page's spans.
    """
    kept, lines, first = np.ones(spans + span - 1, bool), [], 0
    for number in repeated:
        kept[number : number + span] = False
    for line in page.split("\n"):
        sentences = sentences_of(line)
        own = kept[first : first + len(sentences)]
        first += len(sentences)
        if own.all():
            lines.append(line)
        elif own.any():
            lines.append(" ".join(sentence for sentence, keep in zip(sentences, own, strict=True) if keep))
    return "\n".join(lines)
