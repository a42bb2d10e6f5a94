"""How a CSV file is written: its delimiter and its encoding, found in its first megabyte."""

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tlm_ray import storage

SAMPLE_BYTES = 1 << 20
ROWS = 100  # that a delimiter is tried on
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Windows' code page has a letter for nearly every byte, so it comes last; bytes 0x80 to 0x9f apart it is Latin-1.
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
UTF8, WESTERN = "utf-8", "cp1252"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str
    """what stands between two values"""
    encoding: str
    """how characters are bytes, by Python's name"""

    @property
    def words(self) -> str:
        """What is not as one would expect, in words; "" for commas and UTF-8."""
        separated = f"separated by {DELIMITERS[self.delimiter]}" if self.delimiter != "," else ""
        encoded = f"encoded in {self.encoding}" if self.encoding != UTF8 else ""
        return ", ".join(filter(None, (separated, encoded)))


def dialect_of(uri: str) -> Dialect:
    """Find how a CSV file is written.

    Its delimiter is the one that gives all rows the same number of values, two or more; where several do, or none, the
    one that its ending says. Its encoding is UTF-16 or UTF-8 where the bytes are, else Windows' western code page.
    """
    own = "\t" if ".tsv" in storage.without_query(uri).lower() else ","
    with storage.open_text(uri) as stream:
        sample = stream.read(SAMPLE_BYTES)
    encoding = _encoding(sample)
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(sample)
    candidates = sorted(DELIMITERS, key=lambda delimiter: delimiter != own)
    widths = {delimiter: _widths(text, delimiter, whole=len(sample) < SAMPLE_BYTES) for delimiter in candidates}
    even = [delimiter for delimiter, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    headed = [delimiter for delimiter, found in widths.items() if found and found[0] > 1]
    return Dialect(delimiter=next(iter(even or headed), own), encoding=encoding)


def _encoding(sample: bytes) -> str:
    marked = next((name for mark, name in MARKS.items() if sample.startswith(mark)), "")
    if marked:
        return marked
    try:
        codecs.getincrementaldecoder(UTF8)().decode(sample)  # the sample's last character may be cut
    except UnicodeDecodeError:
        return WESTERN
    return UTF8


def _widths(text: str, delimiter: str, *, whole: bool) -> list[int]:
    """Return the number of values of each of the first rows, without the last one, where the text goes on after it."""
    found = list(islice(_rows(text, delimiter), ROWS + 1))
    return found[:ROWS] if whole or len(found) > ROWS else found[:-1]


def _rows(text: str, delimiter: str) -> Iterator[int]:
    try:
        yield from (len(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)
    except csv.Error:  # a value too long for this reader, pyarrow's has other limits
        return
