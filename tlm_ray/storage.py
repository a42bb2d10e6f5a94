"""Files and folders on any filesystem that pyarrow opens; this module and `listing` alone open paths.

A location is a URI (`s3://bucket/key`, `gs://...`, `hf://datasets/...`, `file:///...`) or a local path. Writing is
atomic where the filesystem can rename: a reader sees a whole file or none.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

REMOTE_CHUNK_BYTES = 8 << 20
MAKE_ANEW = "delete its folder to make it anew"  # the fix for a damaged file of a stage
URI_CHARACTERS = "!#$%&'()*+,/:;=?@~"  # what a URI may hold as it is, beside letters, digits and `-._`
STORES = ("s3", "gs")  # schemes of object stores, each bucket of which has a client
# the names of a URI's options that hold credentials
SECRETS = r"sig|[^=&\s]*(?:key|token|secret|signature|password|credential)[^=&\s]*"


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI or local path and the path inside it; ValueError for an unknown scheme."""
    scheme = urlsplit(str(uri)).scheme
    if scheme == "hf":
        from huggingface_hub import HfFileSystem

        return pafs.PyFileSystem(pafs.FSSpecHandler(HfFileSystem())), str(uri).removeprefix("hf://")
    if len(scheme) < 2:  # no scheme (a one-letter scheme is a drive)
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(str(uri)))
    try:
        if scheme in STORES:
            split = urlsplit(str(uri))
            bucket = split.netloc.rpartition("@")[2]
            return _client(scheme, split.netloc, split.query), (bucket + unquote(split.path)).rstrip("/")
        return pafs.FileSystem.from_uri(quote(str(uri), safe=URI_CHARACTERS))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"location {uri!r}: pyarrow opens no such scheme ({error}); use a local path, s3://, gs:// or hf://"
        ) from error


@lru_cache(maxsize=64)
def _client(scheme: str, netloc: str, query: str) -> pafs.FileSystem:
    """Return the client of a bucket, one a process: each has connections, and credentials, of its own to get."""
    if scheme == "s3" and "allow_delayed_open" not in query:
        query += "&allow_delayed_open=true" if query else "allow_delayed_open=true"  # one request for a small file
    uri = urlunsplit((scheme, netloc, "/", query, ""))
    return pafs.FileSystem.from_uri(quote(uri, safe=URI_CHARACTERS))[0]


def is_local(uri: str) -> bool:
    """Say whether a location lies on this machine's own filesystem."""
    return isinstance(open_filesystem(uri)[0], pafs.LocalFileSystem)


def absolute(uri: str) -> str:
    """Return a location that means the same in every process: local paths made absolute, URIs as they are."""
    return open_filesystem(uri)[1] if is_local(uri) else str(uri)


def join(uri: str, *parts: str) -> str:
    """Append path segments to a location, before its query string if it has one."""
    split = urlsplit(str(uri))
    if len(split.scheme) < 2:
        return os.path.join(str(uri), *parts)
    path = "/".join([split.path.rstrip("/"), *parts])
    return urlunsplit(split._replace(path=path))


def without_query(uri: str) -> str:
    """Return a location without its query string; a local path has none, whatever its name holds."""
    return str(uri).partition("?")[0] if len(urlsplit(str(uri)).scheme) > 1 else str(uri)


def sibling(uri: str, path: str) -> str:
    """Return the location of `path`, a path of the filesystem that `uri` lies on."""
    split = urlsplit(str(uri))
    if len(split.scheme) < 2:
        return path
    if split.scheme != "hf":  # the one whose paths are taken as they are
        path = quote(path)
    if split.scheme == "file":
        return urlunsplit(split._replace(path=path))
    netloc = split.netloc.split("@")[0] + "@" if "@" in split.netloc else ""
    bucket, _, key = path.partition("/")
    return urlunsplit(split._replace(netloc=netloc + bucket, path="/" + key))


def shown(text: str) -> str:
    """Return a text fit for a screen or a log: without the credentials that URIs in it may hold."""
    without_user = re.sub(r"(?<=://)[^/\s'\"]+@", "***@", text)  # up to the last @: a password may hold one
    return re.sub(rf"([?&](?:{SECRETS})=)[^&\s'\"]+", r"\1***", without_user, flags=re.IGNORECASE)


def exists(uri: str) -> bool:
    """Say whether a file or folder is there."""
    filesystem, path = open_filesystem(uri)
    return filesystem.get_file_info(path).type != pafs.FileType.NotFound


def absolute_if_there(name: str) -> str:
    """Return a folder's location as it is in any working folder; what is not there, such as a hub name, as it is."""
    return absolute(name) if name and exists(name) else name


def read_bytes(uri: str) -> bytes:
    """Return a file's bytes."""
    filesystem, path = open_filesystem(uri)
    with filesystem.open_input_stream(path, compression=None) as stream:
        return stream.read()


def open_text(uri: str) -> pa.NativeFile:
    """Open a file for reading as a stream, unpacked if its ending says that it is compressed."""
    filesystem, path = open_filesystem(uri)
    return filesystem.open_input_stream(path, compression="detect")


def read_lines(uri: str) -> Iterator[str]:
    """Yield a UTF-8 text file's lines with their ends, without the mark that some editors put first."""
    with open_text(uri) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
        yield from lines


@contextlib.contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for writing; it appears under its name when the block ends.

    If the block raises, what was there stays, be it nothing or an older file.
    """
    filesystem, path = open_filesystem(uri)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        # uploaded when it is whole: closing a store's stream publishes what was written, even if that is a part
        with tempfile.TemporaryDirectory() as folder:
            whole = os.path.join(folder, "whole")
            with open_output(whole) as stream:
                yield stream
            pafs.copy_files(whole, path, destination_filesystem=filesystem)
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
            raise OSError(error.errno, "no space left to write it; free some, then run the same again", uri) from error
        raise


def write_bytes(uri: str, data: bytes) -> None:
    """Write a whole file, atomically where the filesystem can."""
    with open_output(uri) as stream:
        stream.write(data)


def read_json(uri: str, *, fix: str = "delete this file") -> Any:
    """Return a JSON file's value; ValueError names the file and the fix if it is not JSON."""
    try:
        return json.loads(read_bytes(uri))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"file {uri!r} is not JSON ({error}); {fix}") from error


def write_json(uri: str, value: Any) -> None:
    """Write a value as JSON that people can read."""
    write_bytes(uri, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def write_table(uri: str, table: pa.Table) -> None:
    """Write an Arrow table as an uncompressed IPC file, the form that memory maps."""
    with open_output(uri) as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def read_table(uri: str) -> pa.Table:
    """Read an Arrow IPC file; memory-mapped, so nothing is copied, where it is local.

    ValueError names a file that is none or not whole.
    """
    filesystem, path = open_filesystem(uri)
    try:
        if isinstance(filesystem, pafs.LocalFileSystem):
            return pa.ipc.open_file(pa.memory_map(path)).read_all()
        with filesystem.open_input_file(path) as stream:
            return pa.ipc.open_file(stream).read_all()
    except pa.ArrowInvalid as error:
        raise ValueError(f"file {uri!r} cannot be read ({error}); {MAKE_ANEW}") from error


def write_parquet(uri: str, table: pa.Table) -> None:
    """Write an Arrow table as a Parquet file, the form to exchange."""
    with open_output(uri) as stream:
        pq.write_table(table, stream, compression="zstd")


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


def delete(uri: str) -> None:
    """Remove a file or a folder with all that is in it, if it is there."""
    filesystem, path = open_filesystem(uri)
    kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.Directory:
        filesystem.delete_dir(path)
    elif kind == pafs.FileType.File:
        filesystem.delete_file(path)


def digest(uri: str) -> str:
    """Return the sha256 of a file's bytes, read in pieces."""
    filesystem, path = open_filesystem(uri)
    found = hashlib.sha256()
    with filesystem.open_input_stream(path, compression=None) as stream:
        while piece := stream.read(REMOTE_CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()


def copy_folder(source: str, target: str) -> None:
    """Copy a folder's files to another location, on whatever filesystems the two lie."""
    (from_filesystem, from_path), (to_filesystem, to_path) = open_filesystem(source), open_filesystem(target)
    to_filesystem.create_dir(to_path, recursive=True)
    pafs.copy_files(from_path, to_path, source_filesystem=from_filesystem, destination_filesystem=to_filesystem)


@contextlib.contextmanager
def folder_for_writing(uri: str) -> Iterator[Path]:
    """Give a local folder to fill with a library that knows only local paths; its files are at `uri` afterwards."""
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        filesystem, path = open_filesystem(uri)
        filesystem.create_dir(path, recursive=True)
        pafs.copy_files(temporary, path, destination_filesystem=filesystem)


@contextlib.contextmanager
def folder_for_reading(uri: str) -> Iterator[Path]:
    """Give a local folder with the files of `uri`: the folder itself where it is local, else a copy."""
    filesystem, path = open_filesystem(uri)
    if isinstance(filesystem, pafs.LocalFileSystem):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as temporary:
        pafs.copy_files(path, temporary, source_filesystem=filesystem)
        yield Path(temporary)


@contextlib.contextmanager
def file_for_reading(uri: str) -> Iterator[Path]:
    """Give a local file with the bytes and the name of `uri`: the file itself where it is local, else a copy."""
    filesystem, path = open_filesystem(uri)
    if isinstance(filesystem, pafs.LocalFileSystem):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / os.path.basename(path)
        copy.write_bytes(read_bytes(uri))
        yield copy
