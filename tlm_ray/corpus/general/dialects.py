"""Detect a CSV file's delimiter, encoding and quoting from its first megabytes, or its quoting from all of it."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from tlm_ray import storage
from tlm_ray.storage.listing import File, list_files

SAMPLE_BYTES, WHOLE_BYTES = 4 << 20, 1 << 28
ROWS = 100  # used to detect the delimiter
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Windows' code page decodes nearly every byte, so it comes last; except for bytes 0x80 to 0x9f it is Latin-1.
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
UTF8, WESTERN = "utf-8", "cp1252"
FOREIGN = 0.1  # share of letters in runs of three, above which a file has another alphabet; in French it is nearly 0
LINE_END = re.compile("\r\n|\r|\n")  # pyarrow's; str.splitlines also ends lines at U+2028, form feeds and others


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The format of a CSV file."""

    delimiter: str
    """separator of values"""
    encoding: str
    """encoding, by Python's name"""
    quoted: bool = True
    """whether quotes enclose values; else they are ordinary characters"""
    by_line_ends: bool = False
    """whether quotes are ordinary because a line ends at a line end only; earlier versions read such rows otherwise"""

    @property
    def words(self) -> str:
        """The deviations from comma-separated UTF-8, in words; "" if there are none."""
        separated = f"separated by {DELIMITERS[self.delimiter]}" if self.delimiter != "," else ""
        encoded = f"encoded in {self.encoding}" if self.encoding != UTF8 else ""
        return ", ".join(
            filter(None, (separated, encoded, "" if self.quoted else "quotes taken as ordinary characters"))
        )


def dialect_of(uri: str, *, whole: bool = False) -> Dialect:
    """Detect the dialect of a CSV file; whole: with the quotes of its first 256 MB, which memory then holds.

    The delimiter is the one that gives all rows the same number of values, two or more; if several or none do, the
    extension decides. The encoding is UTF-16 or UTF-8 if the bytes are valid, else Windows' western code page. Quotes
    are ordinary characters if they are unbalanced and each line is a row without them. ValueError names the line of an
    unclosed quote in a file with multi-line values, the single invalid byte of a UTF-8 file, or a file whose encoding
    is that of another alphabet.
    """
    return _whole_dialect(list_files(uri)[0]) if whole else _dialect(uri)


@cache
def _whole_dialect(file: File) -> Dialect:
    """Return a file's dialect by all quotes; it is read once per process, unless its size or change time changes."""
    return _dialect(file.uri, whole=True)


def _dialect(uri: str, *, whole: bool = False) -> Dialect:
    own = "\t" if ".tsv" in storage.without_query(uri).lower() else ","
    with storage.open_text(uri) as stream:
        sample = stream.read(SAMPLE_BYTES)
    encoding, short = _encoding(sample, uri), len(sample) < SAMPLE_BYTES
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(sample)
    candidates = sorted(DELIMITERS, key=lambda delimiter: delimiter != own)
    widths = {delimiter: _widths(text, delimiter, whole=short) for delimiter in candidates}
    even = [delimiter for delimiter, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    headed = [delimiter for delimiter, found in widths.items() if found and found[0] > 1]
    delimiter = next(iter(even or headed), own)
    quoted = _is_quoted(text, delimiter, whole=short, uri=uri)
    if whole and quoted and not short:  # a quote may be unclosed further on
        with storage.open_text(uri) as stream:
            data = stream.read(WHOLE_BYTES)
        text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(data)
        quoted = _is_quoted(text, delimiter, whole=len(data) < WHOLE_BYTES, uri=uri)
    by_line_ends = not quoted and len(_lines(text)) < len([line for line in text.splitlines() if line])
    return Dialect(delimiter=delimiter, encoding=encoding, quoted=quoted, by_line_ends=by_line_ends)


def is_utf8(value: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_quoted(text: str, delimiter: str, *, whole: bool, uri: str) -> bool:
    """Return whether quotes enclose values; ValueError names the line of an ambiguous quote."""
    if not text.startswith('"') and f'{delimiter}"' not in text and '\n"' not in text:
        return True  # no value begins with a quote
    lines = _lines(text)
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
    # a multi-line value whose lines each have a row's number of tabs is many rows with unclosed quotes
    return not (even and delimiter == "\t" and rows < len(lines))


def _lines(text: str) -> list[str]:
    return [line for line in LINE_END.split(text) if line]


def _check_lines(text: str, delimiter: str, uri: str, line: int, error: csv.Error) -> None:
    """Raise ValueError if values span lines, because then the end of a value with an unclosed quote is ambiguous."""
    if any("\n" in value for row in _values(text, delimiter) for value in row):
        raise ValueError(
            f"file {uri!r}, line {line}: unbalanced quote ({error}) in a file with multi-line values; "
            'double a quote within a value (""), or write all values without quotes'
        ) from error


def _encoding(sample: bytes, uri: str) -> str:
    marked = next((name for mark, name in MARKS.items() if sample.startswith(mark)), "")
    if marked:
        return marked
    try:
        codecs.getincrementaldecoder(UTF8)().decode(sample)  # the sample's last character may be truncated
    except UnicodeDecodeError as error:
        text = sample.decode(UTF8, errors="surrogateescape")
        wrong = sum("\udc80" <= character <= "\udcff" for character in text)
        if sum(character > "\x7f" for character in text) - wrong > wrong:
            line = sample.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"file {uri!r}, line {line}: byte {error.start}, {sample[error.start : error.start + 1]!r}, is not "
                "UTF-8, but the rest of the file is; fix that line"
            ) from error
        if not _is_western(sample):
            raise ValueError(
                f"file {uri!r}: its encoding is none of UTF-8, UTF-16 and Windows-1252; write it again as UTF-8"
            ) from error
        return WESTERN
    return UTF8


def _is_western(sample: bytes) -> bool:
    """Return whether bytes above 127 stand alone or in pairs, as accented letters do, rather than make up words."""
    runs = re.findall(rb"[\x80-\xff]+", sample)
    foreign = sum(len(run) for run in runs if len(set(run)) > 2)  # not a line of dots or dashes
    return foreign <= FOREIGN * (sum(map(len, runs)) + len(re.findall(rb"[A-Za-z]", sample)))


def _widths(text: str, delimiter: str, *, whole: bool) -> list[int]:
    """Return the number of values of each of the first rows, without the last one if the sample may truncate it."""
    found = list(islice(_rows(text, delimiter), ROWS + 1))
    return found[:ROWS] if whole or len(found) > ROWS else found[:-1]


def _rows(text: str, delimiter: str) -> Iterator[int]:
    yield from map(len, _values(text, delimiter))


def _values(text: str, delimiter: str) -> Iterator[list[str]]:
    try:
        yield from filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:  # a value too long for the csv module; pyarrow has other limits
        return
