"""Identify files by their bytes, and a tokenizer or encoder by its files or its hub name."""

import hashlib
from functools import cache
from typing import Any

from tlm_ray import storage
from tlm_ray.storage import listing

CARD, TAG = "README.md", "tlm_ray"  # a model card, and the tag in its metadata by which it is known


def identity_of(source: str) -> dict[str, Any]:
    """Return {"files": sha256 of each file by name} of an existing folder, else {"name": source}.

    A file is read once per process, unless its name, size or change time changes.
    """
    if not storage.exists(source):
        return {"name": source}
    base = listing.base_of(source)
    return {"files": {listing.name_below(base, file.uri): _digest(file) for file in files_of_model(source)}}


def files_of_model(folder: str) -> list[listing.File]:
    """Return the files that decide what a model does: all but the card, which names the command and the versions."""
    return [file for file in listing.list_files(folder) if not _is_card(file)]


def is_card(text: bytes) -> bool:
    """Return whether a README.md is a model card of this package."""
    return f"- {TAG}\n".encode() in text


def identity_of_file(uri: str) -> str:
    """Return the `content_digest` of a file, cached per process.

    FileNotFoundError if there is no such file; ValueError for a folder of more than one.
    """
    files = listing.list_files(uri)
    if len(files) != 1:
        raise ValueError(f"{storage.shown(uri)!r}: has {len(files):,} files; name one of them")
    return _digest(files[0])


def content_digest(file: listing.File) -> str:
    """Return the sha256 of a file's bytes; on the hub, of its size and the hash stored there."""
    if file.uri.startswith("hf://"):
        return hashlib.sha256(f"{file.size} {file.modified_ns}".encode()).hexdigest()
    return storage.digest(file.uri)


_digest = cache(content_digest)


@cache
def _is_card(file: listing.File) -> bool:
    return storage.without_query(file.uri).endswith(f"/{CARD}") and is_card(storage.read_bytes(file.uri))
