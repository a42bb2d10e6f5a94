"""Cut documents into passages, the unit of retrieval, at sentence ends.

The paper's general corpus has whole sentences packed to about 128 word pieces (mean 509 characters).
Word pieces are estimated as UTF-8 bytes / 4, because no tokenizer exists yet. This also suits scripts without spaces: a
CJK character is 3 bytes and about one piece.
"""

import re
from collections.abc import Iterator

BYTES_PER_TOKEN = 4
SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n\s*")


def split_document(text: str, *, passage_tokens: int) -> list[str]:
    """Cut a document into passages of whole sentences, each of at most about `passage_tokens` word pieces.

    A short document is one passage. A sentence over the limit is cut between words, a word over the limit between
    characters.
    """
    text = text.strip()
    limit = passage_tokens * BYTES_PER_TOKEN
    if _size(text) <= limit:
        return [text] if text else []
    pieces = (piece for sentence in _sentences(text) for piece in _short_enough(sentence, limit))
    return _pack(pieces, limit)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, without the space between them."""
    return [sentence for sentence in _sentences(text) if sentence]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in SENTENCE_END.finditer(text):
        yield text[start : end.end()].strip()
        start = end.end()
    yield text[start:].strip()


def _short_enough(sentence: str, limit: int):
    """Yield a sentence whole, or in runs of words of at most `limit` bytes."""
    if _size(sentence) <= limit:
        yield sentence
        return
    for run in _pack(sentence.split(), limit):
        yield from [run] if _size(run) <= limit else _parts(run.encode(), limit)


def _parts(word: bytes, limit: int):
    """Cut a word longer than a passage between characters, in parts of at most `limit` bytes."""
    start = 0
    while start + limit < len(word):
        end = start + limit
        while word[end] & 0xC0 == 0x80:  # not inside a character
            end -= 1
        yield word[start:end].decode()
        start = end
    yield word[start:].decode()


def _pack(pieces, limit: int) -> list[str]:
    """Join neighbouring pieces with spaces into passages of at most `limit` bytes."""
    passages: list[list[str]] = []
    size = 0
    for piece in pieces:
        if not piece:
            continue
        if passages and size + 1 + _size(piece) <= limit:
            passages[-1].append(piece)
            size += 1 + _size(piece)
        else:
            passages.append([piece])
            size = _size(piece)
    return [" ".join(parts) for parts in passages]
