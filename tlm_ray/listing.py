"""Listings: the files of a folder or glob on any filesystem, and their names below it."""

import contextlib
import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs

from tlm_ray.storage import open_filesystem, sibling, without_query

PATTERN = "*?["  # what makes a glob of a path that is not there


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a listing."""

    uri: str
    """where it is"""
    size: int
    """bytes"""
    modified_ns: int
    """when it last changed, in ns since 1970; on the hub, which tells no time, a number made of its content's hash"""


def list_files(uri: str, suffix: str = "", *, missing_ok: bool = False) -> list[File]:
    """List a file, a folder (recursively) or a glob, sorted by path; FileNotFoundError if nothing is there.

    suffix: keep only paths that end with it. Left out of folders and globs are names that start with `.` or `_`, the
    bookkeeping of other tools, and what links to folders lead to.
    """
    filesystem, path = open_filesystem(uri)
    found = _glob(filesystem, path) if _is_glob(filesystem, path) else _tree(filesystem, path)
    files = []
    for info in sorted(found, key=lambda info: info.path):
        if info.type == pafs.FileType.File and info.path.endswith(suffix):
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                changed = _changed_ns(filesystem, info)
                files.append(File(uri=sibling(uri, info.path), size=info.size or 0, modified_ns=changed))
    if not files and not missing_ok:
        raise FileNotFoundError(f"location {uri!r}: no file there; check the path, or the access rights to it")
    return files


def _changed_ns(filesystem: pafs.FileSystem, info: pafs.FileInfo) -> int:
    """Local files: the inode's change time, which no tool sets back; elsewhere the time of modification, if any."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return os.stat(info.path).st_ctime_ns
    if isinstance(filesystem, pafs.PyFileSystem) and (blob := filesystem.handler.fs.info(info.path).get("blob_id")):
        return int(blob[:15], 16)
    return info.mtime_ns or 0


def _tree(filesystem: pafs.FileSystem, path: str) -> list[pafs.FileInfo]:
    info = filesystem.get_file_info(path)
    if info.type != pafs.FileType.Directory:
        return [info]
    return [f for f in _below(filesystem, path) if not _hidden(os.path.relpath(f.path, path))]


def _below(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """List what is below a folder, nothing if it is not there.

    Links to folders are not followed: pyarrow's own listing takes a link to the folder itself 40 times.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    walk = os.walk(folder, onerror=_unless_gone)
    paths = [os.path.join(place, name) for place, _, names in walk for name in names]
    try:
        return filesystem.get_file_info(paths)
    except UnicodeEncodeError as error:
        wrong = next(path for path in paths if not path.isascii() and path.encode(errors="replace").decode() != path)
        raise ValueError(f"file {os.fsencode(wrong)!r}: its name is no UTF-8; rename it") from error


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_glob(filesystem: pafs.FileSystem, path: str) -> bool:
    return any(c in path for c in PATTERN) and filesystem.get_file_info(path).type == pafs.FileType.NotFound


def _before_glob(pattern: str) -> str:
    first = min(pattern.index(c) for c in PATTERN if c in pattern)
    return pattern[:first].rpartition("/")[0]


def _glob(filesystem: pafs.FileSystem, pattern: str) -> list[pafs.FileInfo]:
    base = _before_glob(pattern)
    return [
        f
        for f in _below(filesystem, base)
        if fnmatch.fnmatch(f.path, pattern) and not _hidden(os.path.relpath(f.path, base))
    ]


def _hidden(relative: str) -> bool:
    return any(part[0] in "._" for part in relative.split("/"))


def base_of(uri: str) -> str:
    """Return the location that a listing's names are relative to: the folder, or a file's or glob's own folder."""
    filesystem, path = open_filesystem(uri)
    if _is_glob(filesystem, path):
        path = _before_glob(path)
    elif filesystem.get_file_info(path).type == pafs.FileType.File:
        path = path.rpartition("/")[0]
    return without_query(sibling(uri, path)).rstrip("/")


def name_below(base: str, uri: str) -> str:
    """Return a listed file's name below its `base_of`, the same on every filesystem."""
    name = without_query(uri).removeprefix(base).lstrip("/")
    return name if urlsplit(base).scheme in ("", "hf") else unquote(name)


def check_only(folder: str, names: Sequence[str]) -> None:
    """ValueError if a folder, which need not be there, holds a file below none of these names."""
    base = base_of(folder)
    for name in (name_below(base, file.uri) for file in list_files(folder, missing_ok=True)):
        if name.partition("/")[0] not in names:
            raise ValueError(
                f"folder {folder!r}: holds {name!r} beside {', '.join(names)}; give another folder, or delete that"
            )
