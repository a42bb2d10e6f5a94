"""What stages keep: tables and records that carry their own sha256, so that damage is named and never believed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from tlm_ray.storage.files import open_output, read_json, write_json
from tlm_ray.storage.locations import open_filesystem

MAKE_ANEW = "delete its folder to make it anew"  # the fix for a damaged file of a stage
SHA256 = "sha256"  # the entry of a record that holds that of the others
MARK = b"tlm_ray\x00"  # before the digest, at the end of a table's file
SEAL_BYTES = len(MARK) + hashlib.sha256().digest_size


def write_table(uri: str, table: pa.Table) -> None:
    """Write an Arrow table as an uncompressed IPC stream, the form that memory maps, with its sha256 behind the end.

    Whoever reads Arrow streams can read it: a stream ends before its file does.
    """
    with open_output(uri) as stream:
        write_stream(stream, table)


def write_stream(stream: pa.NativeFile, table: pa.Table) -> None:
    """Write a table and its sha256 where a file's stream stands."""
    hashed = _Hashed(stream)
    with pa.PythonFile(hashed, mode="w") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    stream.write(MARK + hashed.sha256.digest())


def read_table(uri: str) -> pa.Table:
    """Read what `write_table` wrote; memory-mapped, so nothing is copied, where it is local.

    ValueError names a file that is not as it was written. FileNotFoundError if there is none.
    """
    filesystem, path = open_filesystem(uri)
    if isinstance(filesystem, pafs.LocalFileSystem):
        whole = pa.memory_map(path).read_buffer()
    else:
        with filesystem.open_input_stream(path, compression=None) as stream:
            whole = stream.read_buffer()
    return opened(whole, uri)


def opened(whole: pa.Buffer, uri: str) -> pa.Table:
    """Return the table that `write_stream` wrote, nothing copied; ValueError names the file if its sha256 differs."""
    rows, seal = whole[:-SEAL_BYTES], whole[-SEAL_BYTES:]
    if seal != MARK + hashlib.sha256(rows).digest():
        raise ValueError(f"file {uri!r} cannot be read (it is not as it was written: its sha256 differs); {MAKE_ANEW}")
    return pa.ipc.open_stream(rows).read_all()


class _Hashed:
    """Passes on what is written, and hashes it on its way."""

    closed = False

    def __init__(self, stream: pa.NativeFile):
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self.stream.write(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Leave the stream open: the seal comes behind it."""
        self.closed = True


def write_record(uri: str, values: Mapping[str, Any]) -> None:
    """Write values as JSON that people can read, with the sha256 of their JSON as one more entry, the last."""
    write_json(uri, dict(values) | {SHA256: _digest_of(values)})


def read_record(uri: str, *, fix: str = MAKE_ANEW) -> dict[str, Any]:
    """Return what `write_record` wrote; ValueError names a file that is not as it was written, and the fix."""
    values = read_json(uri, fix=fix)
    if not isinstance(values, dict) or SHA256 not in values:
        raise ValueError(f"file {uri!r} is not as it was written: it holds no sha256; {fix}")
    if values.pop(SHA256) != _digest_of(values):
        raise ValueError(f"file {uri!r} is not as it was written: its sha256 differs; {fix}")
    return values


def _digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(values), ensure_ascii=False).encode()).hexdigest()


def table_to_bytes(table: pa.Table, *, compression: str | None = None) -> bytes:
    """Return an Arrow table as IPC bytes, to travel between processes; compression: None, "lz4" or "zstd"."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def table_from_bytes(data: bytes) -> pa.Table:
    """Return the table of `table_to_bytes`."""
    return pa.ipc.open_stream(data).read_all()
