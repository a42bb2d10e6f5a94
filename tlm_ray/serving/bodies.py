"""Read what a client of the service sent: JSON from anybody, so every size and type is checked."""

import json
import reprlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tlm_ray.serving.settings import Limits

FIELDS = ("texts", "pairs", "top")
EXAMPLE = '{"texts": ["A fine book."]}'


class Refused(Exception):
    """A request that gets no prediction; status: of HTTP. Its message is for the client."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """The texts of a request, second texts for pairs of texts, and how many labels each answer has."""

    texts: list[str]
    pairs: list[str]
    top: int

    @property
    def columns(self) -> list[list[str]]:
        """One column of texts, or two."""
        return [self.texts, self.pairs] if self.pairs else [self.texts]


async def read_body(chunks: AsyncIterator[bytes], declared: str | None, limits: Limits) -> bytes:
    """Return a body of at most the limit; Refused before the rest of a longer one is read.

    declared: the header Content-Length, or None.
    """
    message = f"body: is larger than {limits.max_bytes:,} bytes; send fewer texts per request"
    if declared is not None and declared.isdecimal() and int(declared[:20]) > limits.max_bytes:
        raise Refused(413, message)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limits.max_bytes:
            raise Refused(413, message)
    return bytes(body)


def read_request(body: bytes, limits: Limits, labels: int) -> Asked:
    """Return what a body asks for; Refused names the field, its value, what is allowed.

    A body is a JSON object: texts, a list; pairs, the second text of each; top, how many labels per answer (1).
    """
    found = _object(body)
    if unknown := [name for name in found if name not in FIELDS]:
        raise Refused(400, f"{_short(unknown[0])}: is no field; allowed are {', '.join(FIELDS)}")
    texts = _texts(found.get("texts"), "texts", limits)
    pairs = _texts(found["pairs"], "pairs", limits) if "pairs" in found else []
    if pairs and len(pairs) != len(texts):
        raise Refused(400, f"pairs: has {len(pairs)} texts for {len(texts)} of texts; give one for each")
    top = found.get("top", 1)
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= labels:
        raise Refused(400, f"top {_short(top)}: must be a whole number from 1 to {labels}, the number of labels")
    return Asked(texts, pairs, top)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Refused(400, f"body: is no UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; lists in lists in lists
        raise Refused(400, f"body: is no JSON ({_short(error)}); send an object such as {EXAMPLE}") from error
    if not isinstance(found, dict):
        raise Refused(400, f"body: is a {type(found).__name__}; send an object such as {EXAMPLE}")
    return found


def _texts(found: Any, field: str, limits: Limits) -> list[str]:
    if not isinstance(found, list) or not found:
        raise Refused(400, f"{field} {_short(found)}: must be a list of one text or more, such as in {EXAMPLE}")
    if len(found) > limits.max_texts:
        raise Refused(413, f"{field}: has {len(found):,} texts; send {limits.max_texts:,} per request at most")
    for row, text in enumerate(found):
        if not isinstance(text, str):
            raise Refused(400, f"{field}, row {row}: {_short(text)} is no text")
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # JSON can write half a letter, UTF-8 cannot
            raise Refused(400, f"{field}, row {row}: has half of a surrogate pair, which is no letter")
    return found


def _short(value: Any) -> str:
    """Return a value as it may stand in an answer: of printable ASCII and short."""
    shown = str(value) if isinstance(value, Exception) else reprlib.repr(value)
    return shown.encode("ascii", "replace").decode()[:80]
