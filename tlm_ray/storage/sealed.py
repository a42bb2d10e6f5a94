"""Write and read a stage's tables and records, each with its own sha256, so that corruption is detected on reading."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from tlm_ray.storage.files import open_output, read_json, write_json
from tlm_ray.storage.locations import open_filesystem

MAKE_ANEW = "delete its folder, and the next run makes it again"  # the fix for a corrupt file of a stage
SHA256 = "sha256"  # the entry of a record that holds the sha256 of the others
MARK = b"tlm_ray\x00"  # precedes the digest at the end of a table's file
SEAL_BYTES = len(MARK) + hashlib.sha256().digest_size


def write_table(uri: str, table: pa.Table) -> None:
    """Write an Arrow table as an uncompressed IPC stream, which can be memory-mapped, followed by its sha256.

    Any reader of Arrow streams can read it, because it stops at the end of the stream.
    """
    with open_output(uri) as stream:
        write_stream(stream, table)


def write_stream(stream: pa.NativeFile, table: pa.Table) -> None:
    """Write a table and its sha256 at the current position of a file's stream."""
    hashed = _Hashed(stream)
    with pa.PythonFile(hashed, mode="w") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    stream.write(MARK + hashed.sha256.digest())


def read_table(uri: str) -> pa.Table:
    """Read a table by `write_table`; a local file is memory-mapped, not copied.

    ValueError names a corrupt file. FileNotFoundError if there is none.
    """
    filesystem, path = open_filesystem(uri)
    if isinstance(filesystem, pafs.LocalFileSystem):
        whole = pa.memory_map(path).read_buffer()
    else:
        with filesystem.open_input_stream(path, compression=None) as stream:
            whole = stream.read_buffer()
    return opened(whole, uri)


def opened(whole: pa.Buffer, uri: str) -> pa.Table:
    """Return the table of `write_stream` without copying; ValueError names the file if its sha256 differs."""
    rows, seal = whole[:-SEAL_BYTES], whole[-SEAL_BYTES:]
    if seal != MARK + hashlib.sha256(rows).digest():
        raise ValueError(f"file {uri!r} is corrupt (its sha256 differs); {MAKE_ANEW}")
    return pa.ipc.open_stream(rows).read_all()


class _Hashed:
    """A stream that hashes what is written to it and passes it on."""

    closed = False

    def __init__(self, stream: pa.NativeFile):
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self.stream.write(data)

    def flush(self) -> None:
        """Do nothing, because nothing is buffered here."""

    def close(self) -> None:
        """Leave the stream open, because the sha256 follows."""
        self.closed = True


def write_record(uri: str, values: Mapping[str, Any]) -> None:
    """Write values as indented JSON, with the sha256 of their JSON as the last entry."""
    write_json(uri, dict(values) | {SHA256: _digest_of(values)})


def read_record(uri: str, *, fix: str = MAKE_ANEW) -> dict[str, Any]:
    """Read a record by `write_record`; ValueError names a corrupt file and the fix."""
    values = read_json(uri, fix=fix)
    if not isinstance(values, dict) or SHA256 not in values:
        raise ValueError(f"file {uri!r} is corrupt (it holds no sha256); {fix}")
    if values.pop(SHA256) != _digest_of(values):
        raise ValueError(f"file {uri!r} is corrupt (its sha256 differs); {fix}")
    return values


def _digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(values), ensure_ascii=False).encode()).hexdigest()
