"""Files and folders on any filesystem that pyarrow opens; this package and `listing` alone open paths.

locations: what a location means. files: whole files, as they are. sealed: a stage's tables and records, which carry
their sha256. pieces: files of several tables. joining: tables that
are put together. folders: what libraries that know only local paths read and write.
"""

from tlm_ray.storage.files import (
    delete,
    digest,
    open_output,
    open_text,
    read_bytes,
    read_json,
    read_lines,
    write_bytes,
    write_json,
    write_parquet,
)
from tlm_ray.storage.folders import check_sums, copy_folder, file_for_reading, folder_for_reading, folder_for_writing
from tlm_ray.storage.joining import write_joined
from tlm_ray.storage.locations import (
    absolute,
    absolute_if_there,
    exists,
    is_local,
    join,
    open_filesystem,
    shown,
    sibling,
    without_query,
)
from tlm_ray.storage.pieces import read_piece, write_pieces
from tlm_ray.storage.sealed import (
    MAKE_ANEW,
    read_record,
    read_table,
    table_from_bytes,
    table_to_bytes,
    write_record,
    write_table,
)

__all__ = [
    "MAKE_ANEW",
    "absolute",
    "absolute_if_there",
    "check_sums",
    "copy_folder",
    "delete",
    "digest",
    "exists",
    "file_for_reading",
    "folder_for_reading",
    "folder_for_writing",
    "is_local",
    "join",
    "open_filesystem",
    "open_output",
    "open_text",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_piece",
    "read_record",
    "read_table",
    "shown",
    "sibling",
    "table_from_bytes",
    "table_to_bytes",
    "without_query",
    "write_bytes",
    "write_joined",
    "write_json",
    "write_parquet",
    "write_pieces",
    "write_record",
    "write_table",
]
