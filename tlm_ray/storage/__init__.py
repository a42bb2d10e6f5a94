"""Read and write files and folders on any filesystem that pyarrow opens; only this package and `listing` open paths.

locations: URIs and local paths. files: whole files. sealed: tables and records with their sha256. pieces: several
tables per file. joining: concatenated tables. folders: local folders for libraries that only take local paths.
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
    all_without_credentials,
    exists,
    is_local,
    join,
    lasting,
    open_filesystem,
    shown,
    sibling,
    without_credentials,
    without_query,
)
from tlm_ray.storage.pieces import read_piece, write_pieces
from tlm_ray.storage.sealed import (
    MAKE_ANEW,
    read_record,
    read_table,
    write_record,
    write_table,
)

__all__ = [
    "MAKE_ANEW",
    "absolute",
    "absolute_if_there",
    "all_without_credentials",
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
    "lasting",
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
    "without_credentials",
    "without_query",
    "write_bytes",
    "write_joined",
    "write_json",
    "write_parquet",
    "write_pieces",
    "write_record",
    "write_table",
]
