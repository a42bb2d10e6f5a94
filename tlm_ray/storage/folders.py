"""Lend local folders and files to libraries that only take local paths; written folders get a list of checksums."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.fs as pafs

from tlm_ray.storage.files import digest, read_bytes, send
from tlm_ray.storage.locations import exists, join, open_filesystem

SUMS = "SHA256SUMS"  # in the format of sha256sum


@contextlib.contextmanager
def folder_for_writing(uri: str) -> Iterator[Path]:
    """Yield a local folder to write into; its files are at `uri` afterwards.

    A list of their sha256 is added, which `sha256sum --check` can read.
    """
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        _write_sums(Path(temporary))
        _send_folder(Path(temporary), uri)


@contextlib.contextmanager
def folder_for_reading(uri: str) -> Iterator[Path]:
    """Yield a local folder with the files of `uri`: the folder itself if it is local, else a copy.

    ValueError names a file that does not match the list of sha256; folders from elsewhere need no such list.
    """
    filesystem, path = open_filesystem(uri)
    with contextlib.ExitStack() as stack:
        if isinstance(filesystem, pafs.LocalFileSystem):
            folder = Path(path)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            pafs.copy_files(path, str(folder), source_filesystem=filesystem)
        check_sums(str(folder), uri)
        yield folder


def copy_folder(source: str, target: str, *, without: Sequence[str] = ()) -> None:
    """Copy a folder's files to another location; ValueError if one does not match the list of sha256.

    without: names of files to leave out.
    """
    with folder_for_reading(source) as folder:
        _send_folder(folder, target, without)


def _send_folder(folder: Path, uri: str, without: Sequence[str] = ()) -> None:
    filesystem, path = open_filesystem(uri)
    filesystem.create_dir(path, recursive=True)
    for file in sorted(folder.rglob("*")):
        there = f"{path}/{file.relative_to(folder).as_posix()}"
        if file.name in without:
            continue
        if file.is_dir():
            filesystem.create_dir(there)
        else:
            send(str(file), filesystem, there)


def _write_sums(folder: Path) -> None:
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    (folder / SUMS).write_text("".join(f"{digest(str(folder / name))}  {name}\n" for name in names))


def check_sums(folder: str, shown: str = "") -> None:
    """Check a folder against its list of sha256, if it has one; ValueError names a file that does not match.

    shown: the folder's name in errors, if `folder` is a copy.
    """
    sums = join(folder, SUMS)
    if not exists(sums):
        return
    for line in read_bytes(sums).decode(errors="replace").removesuffix("\n").split("\n"):
        expected, _, name = line.partition("  ")
        file, inside = join(folder, name), ".." not in Path(name).parts
        if not (name and inside and exists(file) and digest(file) == expected):
            raise ValueError(
                f"folder {shown or folder!r}: {name or line!r} does not match {SUMS}; make or copy it again, or delete "
                f"{SUMS} if it was changed on purpose"
            )


@contextlib.contextmanager
def file_for_reading(uri: str) -> Iterator[Path]:
    """Yield a local file with the bytes and the name of `uri`: the file itself if it is local, else a copy."""
    filesystem, path = open_filesystem(uri)
    if isinstance(filesystem, pafs.LocalFileSystem):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / os.path.basename(path)
        copy.write_bytes(read_bytes(uri))
        yield copy
