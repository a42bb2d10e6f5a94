"""Concatenate tables on disk: tables larger than memory become one table of one chunk, to be memory-mapped."""

import os
import tempfile
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tlm_ray.storage.sealed import write_table


def write_joined(uri: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Concatenate tables into one file as `write_table` writes it, with one of them in memory at a time.

    schema: columns of numbers or large lists of numbers, without nulls. The columns are gathered in the system's folder
    for temporary files. It needs as much space as the result, or twice that if the result lies elsewhere.
    """
    with tempfile.TemporaryDirectory() as folder:
        columns = [_Column(os.path.join(folder, field.name), field.type) for field in schema]
        for table in tables:
            for column in columns:
                column.append(table[os.path.basename(column.path)])
        write_table(uri, pa.table([column.whole() for column in columns], schema=schema))


class _Column:
    """A column under construction: its numbers in one file and, for lists, the ends of the lists in another."""

    def __init__(self, path: str, kind: pa.DataType):
        self.path, self.ends, self.kind = path, f"{path}-ends", kind
        self.is_list, self.length = pa.types.is_large_list(kind), 0
        _append(self.path, np.zeros(0, np.uint8))
        _append(self.ends, np.zeros(1, np.int64))

    def append(self, column: pa.ChunkedArray) -> None:
        """Append rows."""
        for chunk in column.chunks:
            numbers = chunk.flatten() if self.is_list else chunk
            if self.is_list:
                offsets = chunk.offsets.to_numpy()
                _append(self.ends, offsets[1:] - offsets[0] + self.length)
            _append(self.path, numbers.to_numpy())
            self.length += len(numbers)

    def whole(self) -> pa.Array:
        """Return all rows as one chunk, memory-mapped."""
        if not self.is_list:
            return _mapped(self.path, self.kind)
        return pa.LargeListArray.from_arrays(_mapped(self.ends, pa.int64()), _mapped(self.path, self.kind.value_type))


def _append(path: str, numbers: np.ndarray) -> None:
    with open(path, "ab") as file:
        numbers.tofile(file)


def _mapped(path: str, kind: pa.DataType) -> pa.Array:
    size = os.path.getsize(path)
    data = pa.memory_map(path).read_buffer() if size else pa.py_buffer(b"")  # an empty file cannot be memory-mapped
    return pa.Array.from_buffers(kind, size * 8 // kind.bit_width, [None, data])
