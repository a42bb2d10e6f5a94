"""Read and write whole files; writes are atomic, so a reader sees the whole file or none."""

import contextlib
import errno
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tlm_ray.storage.locations import open_filesystem

REMOTE_CHUNK_BYTES = 8 << 20
LONGEST_LINE = 64_000_000  # characters
LONGEST_BYTES = 4 * LONGEST_LINE


def read_bytes(uri: str) -> bytes:
    """Return a file's bytes."""
    filesystem, path = open_filesystem(uri)
    with filesystem.open_input_stream(path, compression=None) as stream:
        return stream.read()


def open_text(uri: str) -> pa.NativeFile:
    """Open a file as a stream, decompressed if its extension is that of a compressed file."""
    filesystem, path = open_filesystem(uri)
    return filesystem.open_input_stream(path, compression="detect")


def read_lines(uri: str, bounds: tuple[int, int] | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file with their line ends, without a byte order mark.

    bounds: yield only the lines that begin within these bytes; the file must not be compressed. ValueError names a line
    of more than 64 million characters, which even a small compressed file may hold.
    """
    lines = _whole_lines(uri) if bounds is None else _lines_within(uri, *bounds)
    for number, line in enumerate(lines, 1):
        if len(line) >= LONGEST_LINE and not line.endswith("\n"):
            raise ValueError(f"file {uri!r}, line {number}: has more than {LONGEST_LINE:,} characters; split it")
        yield line


def _whole_lines(uri: str) -> Iterator[str]:
    with open_text(uri) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
        while line := lines.readline(LONGEST_LINE):
            yield line


def _lines_within(uri: str, start: int, stop: int) -> Iterator[str]:
    """Yield the lines that begin within a range of bytes; a line that begins before it belongs to another range."""
    filesystem, path = open_filesystem(uri)
    with filesystem.open_input_file(path) as file, io.BufferedReader(file, REMOTE_CHUNK_BYTES) as lines:
        at = max(0, start - 1)
        file.seek(at)
        if start:
            at += _skipped(lines, stop - at)
        while at < stop and (line := lines.readline(LONGEST_BYTES)):
            if len(line) == LONGEST_BYTES and not line.endswith(b"\n"):
                raise ValueError(
                    f"file {uri!r}, byte {at:,}: a line has more than {LONGEST_LINE:,} characters; split it"
                )
            at += len(line)
            yield line.decode("utf-8-sig" if at == len(line) else "utf-8")


def _skipped(lines: io.BufferedReader, most: int) -> int:
    """Skip the rest of a line, up to a maximum of bytes; return the number of bytes skipped."""
    skipped = 0
    while skipped < most and (piece := lines.readline(min(REMOTE_CHUNK_BYTES, most - skipped))):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


@contextlib.contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for writing; it appears under its name only when the block ends.

    If the block raises, an older file of the same name stays unchanged.
    """
    filesystem, path = open_filesystem(uri)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        # uploaded once complete: closing an object store's stream publishes even a partial file
        with tempfile.TemporaryDirectory() as folder:
            whole = os.path.join(folder, "whole")
            with open_output(whole) as stream:
                yield stream
            send(whole, filesystem, path)
        return
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    filesystem.create_dir(os.path.dirname(path), recursive=True)
    try:
        with filesystem.open_output_stream(temporary, compression=None) as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                error.errno, "no space left on the device; free some, then run the same command again", uri
            ) from error
        raise


def send(source: str, filesystem: pafs.FileSystem, path: str) -> None:
    """Copy a local file to a path of a filesystem; a local one has it whole or not at all. OSError if that fails.

    Arrow's `copy_files` (25.0.1) raises nothing when a store refuses a small file, which is sent when its stream
    closes.
    """
    data = pa.memory_map(source).read_buffer() if os.path.getsize(source) else b""
    if isinstance(filesystem, pafs.LocalFileSystem):
        write_bytes(path, data)
        return
    with filesystem.open_output_stream(path, compression=None) as stream:
        stream.write(data)  # it appears when its stream closes


def write_bytes(uri: str, data: bytes | pa.Buffer) -> None:
    """Write a whole file, atomically where the filesystem can."""
    with open_output(uri) as stream:
        stream.write(data)


def read_json(uri: str, *, fix: str = "delete this file") -> Any:
    """Read a JSON file; ValueError names the file and the fix if it is not JSON."""
    try:
        return json.loads(read_bytes(uri))
    except (ValueError, RecursionError) as error:  # ValueError also for a number of more than 4,300 digits
        raise ValueError(f"file {uri!r} is not JSON ({error}); {fix}") from error


def write_json(uri: str, value: Any) -> None:
    """Write a value as indented JSON."""
    write_bytes(uri, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def write_parquet(uri: str, table: pa.Table) -> None:
    """Write an Arrow table as a Parquet file, for use by other tools."""
    with open_output(uri) as stream:
        pq.write_table(table, stream, compression="zstd")


def delete(uri: str) -> None:
    """Delete a file or a folder with its contents, if it exists."""
    filesystem, path = open_filesystem(uri)
    kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.Directory:
        filesystem.delete_dir(path)
    elif kind == pafs.FileType.File:
        filesystem.delete_file(path)


def digest(uri: str) -> str:
    """Return the sha256 of a file, read in chunks."""
    filesystem, path = open_filesystem(uri)
    found = hashlib.sha256()
    with filesystem.open_input_stream(path, compression=None) as stream:
        while piece := stream.read(REMOTE_CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()
