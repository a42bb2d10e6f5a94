"""Names of classes: those in a file's metadata, and names that no one can have meant."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

MISSING = ("nan", "<na>")  # as pandas writes a missing value
MOST_NUMBERS = 20  # different numbers, some with a fraction, that may still be classes, such as half stars
SHOWN = 5
CODE = re.compile(r"\s*0\d")


def names_in(table: pa.Table, column: str) -> tuple[str, ...]:
    """Return the names that Hugging Face's datasets wrote for a column's numbers (ClassLabel); () if there are none."""
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    try:
        feature = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"][column]
        return tuple(feature["names"]) if feature["_type"] == "ClassLabel" else ()
    except (KeyError, TypeError, ValueError):
        return ()


def named(labels: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray:
    """Replace numbers, as strings, by the names at these places; others stay."""
    known = {str(number): name for number, name in enumerate(names)}
    return pa.chunked_array([pa.array([known.get(label, label) for label in labels.to_pylist()], pa.string())])


def is_missing(label: str) -> bool:
    """Return whether a label is a missing value that was written as text."""
    return label.strip().lower() in MISSING


def check_names(labels: Iterable[str], column: str, uri: str) -> None:
    """Raise ValueError for classes that differ in their spelling alone, and for numbers that are no classes."""
    found = sorted(set(labels))
    alike: dict[str | Decimal, list[str]] = {}
    for label in found:
        alike.setdefault(spelt(label), []).append(label)
    same = [words for words in alike.values() if len(words) > 1]
    if same:
        said = "; ".join(", ".join(map(repr, words)) for words in same[:SHOWN])
        raise ValueError(
            f"file {uri!r}, column {column!r}: labels differ in case, spaces, form of Unicode or way of writing a "
            f"number alone: {said}; write each class one way"
        )
    numbers = [float(label) for label in found if is_number(label)]
    fractions = [number for number in numbers if not number.is_integer()]
    if len(found) > MOST_NUMBERS and len(numbers) == len(found) and fractions:
        raise ValueError(
            f"file {uri!r}, column {column!r}: has {len(found):,} different numbers, such as {fractions[0]:g}, which "
            "are no classes; give --metric pearson_spearman for a regression, or name another column (--label)"
        )


def spelt(label: str) -> str | Decimal:
    """Return a label without differences in case, spaces, Unicode's forms and invisible characters; a number's value.

    A label with a leading zero is a code, not a number.
    """
    if is_number(label) and not CODE.match(label):
        return Decimal(label)
    seen = "".join(sign for sign in unicodedata.normalize("NFC", label) if unicodedata.category(sign) != "Cf")
    return " ".join(seen.split()).casefold()


def is_number(label: str) -> bool:
    """Return whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
