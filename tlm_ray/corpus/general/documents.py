"""Read raw text (Parquet, JSONL, CSV, plain text, crawled pages) from any location, as batches of columns."""

import csv
import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tlm_ray import storage
from tlm_ray.corpus.general.dialects import dialect_of, is_utf8
from tlm_ray.corpus.general.web import read_pages

FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".md": "text",
    ".wet": "warc",
    ".warc": "warc",
}
PACKED = (".gz", ".zst", ".bz2")
BATCH_ROWS = 8192
BATCH_CHARACTERS = 64_000_000  # of lines of JSONL; 8,192 books would be gigabytes, and an Arrow array ends at 2 GiB
PAGES = 256  # crawled pages per batch; some are megabytes
SHOWN = 40  # characters of a text to show in an error
CSV_BLOCK_BYTES = 32 << 20  # the longest CSV row; pyarrow's default of 1 MB is less than a book


def file_format(uri: str) -> str:
    """Return parquet, jsonl, csv, text or warc by the file's extension, ignoring `.gz`, `.zst` and `.bz2`."""
    name = storage.without_query(uri).lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    for ending, found in FORMATS.items():
        if name.endswith(ending):
            return found
    raise ValueError(f"file {uri!r}: its extension is none of {', '.join(FORMATS)}; rename or convert it")


def can_be_cut(uri: str) -> bool:
    """Return whether a file can be read from any byte on: one row per line, not compressed."""
    return file_format(uri) == "jsonl" and not is_packed(uri)


def is_packed(uri: str) -> bool:
    """Return whether a file is compressed, so that its text may be many times its size."""
    return file_format(uri) == "parquet" or storage.without_query(uri).lower().endswith(PACKED)


def read_columns(
    uri: str, columns: list[str] | None = None, bounds: tuple[int, int] | None = None, *, whole: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order as record batches of the named columns (all if None).

    bounds: yield only rows that begin within these bytes; the file must be one that `can_be_cut`. whole: check all
    quotes of a CSV file, see `dialect_of`. ValueError names the file and the missing or duplicate column, or the
    invalid line.
    """
    readers = {"parquet": _parquet, "jsonl": _jsonl, "csv": _csv, "text": _text, "warc": _warc}
    reader = partial(_csv, whole=True) if whole and file_format(uri) == "csv" else readers[file_format(uri)]
    try:
        for batch in reader(uri, columns) if bounds is None else _jsonl(uri, columns, bounds):
            yield _select(batch, columns, uri)
    except (pa.ArrowException, OSError, UnicodeError, csv.Error) as error:
        raise ValueError(f"file {uri!r} cannot be read ({_counted(str(error))}); repair or remove it") from error


def _counted(message: str) -> str:
    """Renumber the row in pyarrow's message so that row 1 is the first below the header, as in all errors here."""
    counted = re.sub(r"Row #(\d+)", lambda match: f"row {int(match[1]) - 1}", message)
    return f"{counted}; quote values that contain the delimiter" if "Expected" in counted else counted


def _select(batch: pa.RecordBatch, columns: list[str] | None, uri: str) -> pa.RecordBatch:
    names = batch.schema.names
    for column in columns or names:
        if column not in names:
            raise ValueError(
                f"file {uri!r} has no column {column!r}; its columns are {', '.join(names)}; "
                "choose one of them (--column for a corpus)"
            )
        if names.count(column) > 1:
            raise ValueError(f"file {uri!r} has {names.count(column)} columns named {column!r}; rename one")
    return batch.select(columns) if columns else batch


def as_strings(values: pa.Array | pa.ChunkedArray, column: str, uri: str) -> pa.Array | pa.ChunkedArray:
    """Return a column as strings; ValueError names the file and column if the values are not text or numbers."""
    try:
        strings = values.cast(pa.string())
    except pa.ArrowException as error:
        raise ValueError(
            f"file {uri!r}, column {column!r}: is not text ({error}); choose or make a text column"
        ) from error
    try:
        strings.validate(full=True)  # a Parquet file may declare any bytes as a string
    except pa.ArrowInvalid as error:
        wrong = next(value for value in strings.cast(pa.binary()).to_pylist() if not is_utf8(value or b""))
        raise ValueError(
            f"file {uri!r}, column {column!r}: {wrong[:SHOWN]!r} is not UTF-8; write the file again as UTF-8"
        ) from error
    return strings


def _parquet(uri: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    filesystem, path = storage.open_filesystem(uri)
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        if file.metadata.num_rows == 0:
            yield pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
        known = columns and set(columns) <= set(file.schema_arrow.names)
        yield from file.iter_batches(BATCH_ROWS, columns=columns if known else None)


def _csv(uri: str, columns: list[str] | None, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
    dialect = dialect_of(uri, whole=whole)
    read = pacsv.ReadOptions(  # single-threaded, because only then errors have a row number
        use_threads=False, block_size=CSV_BLOCK_BYTES, encoding=dialect.encoding
    )
    options = pacsv.ParseOptions(
        delimiter=dialect.delimiter, newlines_in_values=dialect.quoted, quote_char='"' if dialect.quoted else False
    )
    with storage.open_text(uri) as stream:
        header = pacsv.open_csv(stream, read_options=read, parse_options=options).schema.names
    types = pacsv.ConvertOptions(column_types={name: pa.string() for name in header}, strings_can_be_null=False)
    with storage.open_text(uri) as stream:
        yield from pacsv.open_csv(stream, read_options=read, parse_options=options, convert_options=types)


def _jsonl(uri: str, columns: list[str] | None, bounds: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
    rows, size = list[dict](), 0
    # columns seen in other rows of the file, which a row may lack; a file's first range says whether the file has them
    known = set(columns or ()) if bounds and bounds[0] else set[str]()
    for number, line in enumerate(storage.read_lines(uri, bounds), 1):
        where = f"file {uri!r}, line {number}" + (f" from byte {bounds[0]:,} on" if bounds and bounds[0] else "")
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError also of a number of more than 4,300 digits
            raise ValueError(f"{where}: not JSON ({error}); fix the line") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: {line[:SHOWN]!r} is not an object; write one object per line")
        rows.append(row)
        known.update(row)
        size += len(line)
        # only the number of rows decides whether the first batch lacks a column
        if len(rows) == BATCH_ROWS or (size >= BATCH_CHARACTERS and known.issuperset(columns or ())):
            yield _batch(rows, columns, uri, known)
            rows, size = [], 0
    if rows:
        yield _batch(rows, columns, uri, known)


def _batch(rows: list[dict], columns: list[str] | None, uri: str, known: set[str]) -> pa.RecordBatch:
    """Turn rows into columns, including known columns that no row has; columns that were not requested stay empty."""
    made = {}
    names = dict.fromkeys(name for row in rows for name in row)
    for name in [*names, *(name for name in columns or () if name in known - names.keys())]:
        wanted = columns is None or name in columns
        try:
            made[name] = pa.array([row.get(name) for row in rows]) if wanted else pa.nulls(len(rows))
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise ValueError(f"file {uri!r}, column {name!r}: {error}; give all its values one type") from error
    return pa.RecordBatch.from_pydict(made)


def _text(uri: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a plain text file, which blank lines separate."""
    documents: list[str] = []
    lines: list[str] = []
    for line in storage.read_lines(uri):
        if line.strip():
            lines.append(line)
        elif lines:
            documents.append("".join(lines))
            lines = []
        if len(documents) == BATCH_ROWS:
            yield pa.RecordBatch.from_pydict({"text": documents})
            documents = []
    if lines:
        documents.append("".join(lines))
    if documents:
        yield pa.RecordBatch.from_pydict({"text": documents})


def _warc(uri: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    pages = read_pages(uri)
    while rows := list(islice(pages, PAGES)):
        yield pa.RecordBatch.from_pylist(rows, pa.schema({"text": pa.string(), "url": pa.string()}))
