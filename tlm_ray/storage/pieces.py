"""Write and read files of several tables, each readable alone: the output of a shuffle task for its successors.

A file holds the tables as `write_table` writes them, each with its sha256. A footer holds the end of each table and
their number, int64, and its own sha256. So a reader needs two range requests.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tlm_ray.storage.files import open_output
from tlm_ray.storage.locations import open_filesystem
from tlm_ray.storage.sealed import MAKE_ANEW, opened, write_stream

TAIL_BYTES = 1 << 16  # read at once from a file's end: the footer of 8,000 tables
NUMBER = np.dtype("<i8")
SHA256_BYTES = hashlib.sha256().digest_size


def write_pieces(uri: str, tables: Iterable[pa.Table]) -> None:
    """Write tables to one file, in order, with one in memory at a time."""
    ends = []
    with open_output(uri) as stream:
        for table in tables:
            write_stream(stream, table)
            ends.append(stream.tell())
        listed = np.array([*ends, len(ends)], NUMBER).tobytes()
        stream.write(listed + hashlib.sha256(listed).digest())


def read_piece(uri: str, number: int) -> pa.Table:
    """Read one table of a file by `write_pieces`; ValueError names a corrupt file."""
    filesystem, path = open_filesystem(uri)
    with filesystem.open_input_file(path) as file:
        start, stop = _bounds(file, uri, number)
        return opened(pa.py_buffer(file.read_at(stop - start, start)), uri)


def _bounds(file: pa.NativeFile, uri: str, number: int) -> tuple[int, int]:
    """Return where a table begins and ends in a file."""
    size = file.size()
    tail = file.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES))
    count = np.frombuffer(tail[:-SHA256_BYTES][-NUMBER.itemsize :].ljust(NUMBER.itemsize, b"\xff"), NUMBER)[0]
    listed = (int(count) + 1) * NUMBER.itemsize
    if len(tail) < listed + SHA256_BYTES <= size:
        tail = file.read_at(listed + SHA256_BYTES, size - listed - SHA256_BYTES)
    ends, seal = tail[-listed - SHA256_BYTES : -SHA256_BYTES], tail[-SHA256_BYTES:]
    if count < 0 or hashlib.sha256(ends).digest() != seal:
        raise ValueError(f"file {uri!r} is corrupt (its sha256 differs); {MAKE_ANEW}")
    bounds = np.frombuffer(b"\0" * NUMBER.itemsize + ends, NUMBER)[:-1]
    return int(bounds[number]), int(bounds[number + 1])
