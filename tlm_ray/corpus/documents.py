"""Readers of raw text: Parquet, JSONL, CSV and plain text, from any location, as batches of one text column."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tlm_ray import storage

FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".md": "text",
}
BATCH_ROWS = 8192


def file_format(uri: str) -> str:
    """Return parquet, jsonl, csv or text by the file's ending (`.gz`, `.zst` and `.bz2` are looked through)."""
    name = uri.partition("?")[0].lower()
    for packed in (".gz", ".zst", ".bz2"):
        name = name.removesuffix(packed)
    for ending, found in FORMATS.items():
        if name.endswith(ending):
            return found
    raise ValueError(f"file {uri!r}: its ending is none of {', '.join(FORMATS)}; rename or convert it")


def read_columns(uri: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order as record batches of the named columns (all if None).

    ValueError names the file and the column that is missing, or the row that cannot be read.
    """
    reader = {"parquet": _parquet, "jsonl": _jsonl, "csv": _csv, "text": _text}[file_format(uri)]
    try:
        for batch in reader(uri):
            yield _select(batch, columns, uri)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file {uri!r} cannot be read ({error}); repair it or take it away") from error


def _select(batch: pa.RecordBatch, columns: list[str] | None, uri: str) -> pa.RecordBatch:
    for column in columns or []:
        if column not in batch.schema.names:
            raise ValueError(
                f"file {uri!r} has no column {column!r}, only {', '.join(batch.schema.names)}; "
                "name the right one (--column for a corpus)"
            )
    return batch.select(columns) if columns else batch


def _parquet(uri: str) -> Iterator[pa.RecordBatch]:
    filesystem, path = storage.open_filesystem(uri)
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        if file.metadata.num_rows == 0:
            yield pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
        yield from file.iter_batches(BATCH_ROWS)


def _csv(uri: str) -> Iterator[pa.RecordBatch]:
    name = uri.partition("?")[0].lower()
    options = pacsv.ParseOptions(delimiter="\t" if ".tsv" in name else ",", newlines_in_values=True)
    with storage.open_text(uri) as stream:
        header = pacsv.open_csv(stream, parse_options=options).schema.names
    types = pacsv.ConvertOptions(column_types={name: pa.string() for name in header}, strings_can_be_null=False)
    with storage.open_text(uri) as stream:
        yield from pacsv.open_csv(stream, parse_options=options, convert_options=types)


def _jsonl(uri: str) -> Iterator[pa.RecordBatch]:
    rows: list[dict] = []
    for number, line in enumerate(storage.read_lines(uri), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"file {uri!r}, line {number}: not JSON ({error}); mend the line") from error
        if not isinstance(row, dict):
            raise ValueError(f"file {uri!r}, line {number}: {line[:40]!r} is not an object; write one a line")
        rows.append(row)
        if len(rows) == BATCH_ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _batch(rows: list[dict]) -> pa.RecordBatch:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.RecordBatch.from_pydict({name: [row.get(name) for row in rows] for name in names})


def _text(uri: str) -> Iterator[pa.RecordBatch]:
    """Documents of a plain text file are separated by blank lines."""
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
