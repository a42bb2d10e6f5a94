"""What identifies a tokenizer or encoder that a user names: the digests of a local folder's files, or a hub name."""

import hashlib
from functools import cache
from typing import Any

from tlm_ray import listing, storage


def identity_of(source: str) -> dict[str, Any]:
    """Return {"files": the sha256 of each file by its name} of a folder that is there, else {"name": source}.

    A file is read once per process, until its name, size or change time is another.
    """
    if not storage.exists(source):
        return {"name": source}
    base = listing.base_of(source)
    return {"files": {listing.name_below(base, file.uri): _digest(file) for file in listing.list_files(source)}}


def identity_of_file(uri: str) -> str:
    """Return the sha256 of a local file; of a remote one, which would have to be fetched, of its size and time.

    FileNotFoundError if there is none.
    """
    (file,) = listing.list_files(uri)
    if storage.is_local(uri):
        return _digest(file)
    return hashlib.sha256(f"{file.size} {file.modified_ns}".encode()).hexdigest()


@cache
def _digest(file: listing.File) -> str:
    return storage.digest(file.uri)
