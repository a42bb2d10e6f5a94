"""List the files of a folder or glob on any filesystem, with their names relative to it."""

import contextlib
import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs

from tlm_ray.storage import open_filesystem, sibling, without_query

PATTERN = "*?["  # characters that make a path without a file a glob


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a listing."""

    uri: str
    """its location"""
    size: int
    """bytes"""
    modified_ns: int
    """time of the last change, in ns since 1970; on the hub, which gives no time, a number from the content's hash"""


def list_files(uri: str, suffix: str = "", *, missing_ok: bool = False) -> list[File]:
    """List a file, a folder (recursively) or a glob, sorted by path; FileNotFoundError if it has no file.

    suffix: keep only paths that end with it. Folders and globs skip names that start with `.` or `_` (the bookkeeping
    of other tools) and links to folders.
    """
    filesystem, path = open_filesystem(uri)
    found = _glob(filesystem, path) if _is_glob(filesystem, path) else _tree(filesystem, path)
    files = []
    for info in sorted(found, key=lambda info: info.path):
        if info.type == pafs.FileType.File and info.path.endswith(suffix):
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                changed = _changed_ns(filesystem, info)
                files.append(File(uri=sibling(uri, info.path), size=info.size or 0, modified_ns=changed))
    if not files and not missing_ok:
        raise FileNotFoundError(f"location {uri!r}: no such file; check the path and your access rights")
    return files


def _changed_ns(filesystem: pafs.FileSystem, info: pafs.FileInfo) -> int:
    """Return a local file's inode change time, which no tool can reset, or elsewhere its modification time, if any."""
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
    """List the files below a folder; empty if there is no such folder.

    Links to folders are not followed: pyarrow's own listing follows a link to the folder itself 40 times.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    walk = os.walk(folder, onerror=_unless_gone)
    paths = [os.path.join(place, name) for place, _, names in walk for name in names]
    try:
        return filesystem.get_file_info(paths)
    except UnicodeEncodeError as error:
        wrong = next(path for path in paths if not path.isascii() and path.encode(errors="replace").decode() != path)
        raise ValueError(f"file {os.fsencode(wrong)!r}: its name is not UTF-8; rename it") from error


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_glob(filesystem: pafs.FileSystem, path: str) -> bool:
    return any(c in path for c in PATTERN) and filesystem.get_file_info(path).type == pafs.FileType.NotFound


def _before_glob(filesystem: pafs.FileSystem, pattern: str) -> str:
    """Return the folder that a glob's names are relative to; an existing folder's name is no pattern."""
    parts = pattern.split("/")
    for place, part in enumerate(parts[:-1]):
        folder, is_plain = "/".join(parts[: place + 1]), not any(c in part for c in PATTERN)
        # place 0 is a bucket, whose name has no such characters
        if not (is_plain or (place and filesystem.get_file_info(folder).type == pafs.FileType.Directory)):
            return "/".join(parts[:place])
    return "/".join(parts[:-1])


def _glob(filesystem: pafs.FileSystem, pattern: str) -> list[pafs.FileInfo]:
    base = _before_glob(filesystem, pattern)
    patterns = _patterns(pattern.removeprefix(base))
    found = [f for f in _below(filesystem, base) if not _hidden(os.path.relpath(f.path, base))]
    return [f for f in found if any(fnmatch.fnmatch(f.path.removeprefix(base), each) for each in patterns)]


def _patterns(pattern: str) -> list[str]:
    """Return a glob, and what it is where a `**/` stands for no folder, as in Python and bash."""
    before, found, after = pattern.partition("/**/")
    if not found:
        return [pattern]
    return [before + between + rest for rest in _patterns(after) for between in ("/**/", "/")]


def _hidden(relative: str) -> bool:
    return any(part[0] in "._" for part in relative.split("/"))


def base_of(uri: str) -> str:
    """Return the folder that a listing's names are relative to, without a query."""
    return without_query(folder_of(uri)).rstrip("/")


def folder_of(uri: str) -> str:
    """Return the folder of a listing: the folder itself, or that of the file or glob."""
    filesystem, path = open_filesystem(uri)
    if _is_glob(filesystem, path):
        path = _before_glob(filesystem, path)
    elif filesystem.get_file_info(path).type == pafs.FileType.File:
        path = path.rpartition("/")[0]
    return sibling(uri, path)


def name_below(base: str, uri: str) -> str:
    """Return a listed file's name relative to its `base_of`, the same on every filesystem."""
    name = without_query(uri).removeprefix(base).lstrip("/")
    return name if urlsplit(base).scheme in ("", "hf") else unquote(name)


def check_only(folder: str, names: Sequence[str]) -> None:
    """Check that a folder, if it exists, has no files except below these names; ValueError names one."""
    base = base_of(folder)
    for name in (name_below(base, file.uri) for file in list_files(folder, missing_ok=True)):
        if name.partition("/")[0] not in names:
            raise ValueError(
                f"folder {folder!r}: holds {name!r} besides {', '.join(names)}; give another folder, or delete it"
            )
