"""How a CSV file is written: its delimiter, its encoding and what a quote means, found in its first megabytes."""

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tlm_ray import storage

SAMPLE_BYTES = 4 << 20
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
    quoted: bool = True
    """quotes hold a value together; else they are characters like others"""

    @property
    def words(self) -> str:
        """What is not as one would expect, in words; "" for commas and UTF-8."""
        separated = f"separated by {DELIMITERS[self.delimiter]}" if self.delimiter != "," else ""
        encoded = f"encoded in {self.encoding}" if self.encoding != UTF8 else ""
        return ", ".join(filter(None, (separated, encoded, "" if self.quoted else "its quotes are part of its texts")))


def dialect_of(uri: str) -> Dialect:
    """Find how a CSV file is written.

    Its delimiter is the one that gives all rows the same number of values, two or more; where several do, or none, the
    one that its ending says. Its encoding is UTF-16 or UTF-8 where the bytes are, else Windows' western code page.
    Quotes are characters like others where they do not close as they should and each line is a row without them.
    ValueError names the line of a quote that runs on over lines, and the byte that is no UTF-8 in a file that else is.
    """
    own = "\t" if ".tsv" in storage.without_query(uri).lower() else ","
    with storage.open_text(uri) as stream:
        sample = stream.read(SAMPLE_BYTES)
    encoding, whole = _encoding(sample, uri), len(sample) < SAMPLE_BYTES
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(sample)
    candidates = sorted(DELIMITERS, key=lambda delimiter: delimiter != own)
    widths = {delimiter: _widths(text, delimiter, whole=whole) for delimiter in candidates}
    even = [delimiter for delimiter, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    headed = [delimiter for delimiter, found in widths.items() if found and found[0] > 1]
    delimiter = next(iter(even or headed), own)
    return Dialect(delimiter=delimiter, encoding=encoding, quoted=_is_quoted(text, delimiter, whole=whole, uri=uri))


def is_utf8(value: bytes) -> bool:
    """Say whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_quoted(text: str, delimiter: str, *, whole: bool, uri: str) -> bool:
    """Say whether quotes hold values together; ValueError names the line of one that nobody can tell of."""
    if not text.startswith('"') and f'{delimiter}"' not in text and '\n"' not in text:
        return True  # no value begins with one
    lines = [line for line in text.splitlines() if line]
    widths = {line.count(delimiter) + 1 for line in (lines if whole else lines[:-1])}
    even = len(widths) == 1 and widths != {1}
    reader, rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 0
    try:
        rows = sum(bool(row) for row in reader)
    except csv.Error as error:
        text_of_megabytes = "field larger" in str(error) or (not whole and "unexpected end" in str(error))
        if even and not text_of_megabytes:
            return False
        if not text_of_megabytes:
            _check_lines(text, delimiter, uri, reader.line_num, error)
    # a value of several lines, each with its tabs as a row has, is many rows whose quotes nobody closed
    return not (even and delimiter == "\t" and rows < len(lines))


def _check_lines(text: str, delimiter: str, uri: str, line: int, error: csv.Error) -> None:
    """ValueError if values run over lines: then nobody can tell where one with an unclosed quote ends."""
    if any("\n" in value for row in _values(text, delimiter) for value in row):
        raise ValueError(
            f"file {uri!r}, line {line}: a quote does not close as it should ({error}), and values run over lines; "
            'write a quote within a value twice (""), or all values without quotes'
        ) from error


def _encoding(sample: bytes, uri: str) -> str:
    marked = next((name for mark, name in MARKS.items() if sample.startswith(mark)), "")
    if marked:
        return marked
    try:
        codecs.getincrementaldecoder(UTF8)().decode(sample)  # the sample's last character may be cut
    except UnicodeDecodeError as error:
        text = sample.decode(UTF8, errors="surrogateescape")
        wrong = sum("\udc80" <= character <= "\udcff" for character in text)
        if sum(character > "\x7f" for character in text) - wrong > wrong:
            line = sample.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"file {uri!r}, line {line}: byte {error.start}, {sample[error.start : error.start + 1]!r}, is no "
                "UTF-8, which the file else is; mend that line"
            ) from error
        return WESTERN
    return UTF8


def _widths(text: str, delimiter: str, *, whole: bool) -> list[int]:
    """Return the number of values of each of the first rows, without the last one, where the text goes on after it."""
    found = list(islice(_rows(text, delimiter), ROWS + 1))
    return found[:ROWS] if whole or len(found) > ROWS else found[:-1]


def _rows(text: str, delimiter: str) -> Iterator[int]:
    yield from map(len, _values(text, delimiter))


def _values(text: str, delimiter: str) -> Iterator[list[str]]:
    try:
        yield from filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:  # a value too long for this reader, pyarrow's has other limits
        return
