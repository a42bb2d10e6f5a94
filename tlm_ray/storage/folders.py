"""Folders and files for libraries that know only local paths; what is written so carries its sums."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from tlm_ray.storage.files import digest, read_bytes, send
from tlm_ray.storage.locations import exists, join, open_filesystem

SUMS = "SHA256SUMS"  # as sha256sum writes and checks it


@contextlib.contextmanager
def folder_for_writing(uri: str) -> Iterator[Path]:
    """Give a local folder to fill with a library that knows only local paths; its files are at `uri` afterwards.

    A list of their sha256 is put beside them, which `sha256sum --check` reads too.
    """
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        _write_sums(Path(temporary))
        _send_folder(Path(temporary), uri)


@contextlib.contextmanager
def folder_for_reading(uri: str) -> Iterator[Path]:
    """Give a local folder with the files of `uri`: the folder itself where it is local, else a copy.

    ValueError names a file that is not as the list of sha256 beside it says; a folder of others need not have one.
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


def copy_folder(source: str, target: str) -> None:
    """Copy a folder's files to another location; ValueError if one is not as the list of sha256 beside it says."""
    with folder_for_reading(source) as folder:
        _send_folder(folder, target)


def _send_folder(folder: Path, uri: str) -> None:
    filesystem, path = open_filesystem(uri)
    filesystem.create_dir(path, recursive=True)
    for file in sorted(folder.rglob("*")):
        there = f"{path}/{file.relative_to(folder).as_posix()}"
        if file.is_dir():
            filesystem.create_dir(there)
        else:
            send(str(file), filesystem, there)


def _write_sums(folder: Path) -> None:
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    (folder / SUMS).write_text("".join(f"{digest(str(folder / name))}  {name}\n" for name in names))


def check_sums(folder: str, shown: str = "") -> None:
    """ValueError names a file of a folder that is not as the list of sha256 there says, if there is one.

    shown: what to call the folder, if it is a copy.
    """
    sums = join(folder, SUMS)
    if not exists(sums):
        return
    for line in read_bytes(sums).decode(errors="replace").removesuffix("\n").split("\n"):
        expected, _, name = line.partition("  ")
        file, inside = join(folder, name), ".." not in Path(name).parts
        if not (name and inside and exists(file) and digest(file) == expected):
            raise ValueError(
                f"folder {shown or folder!r}: {name or line!r} is not as {SUMS} says; make or copy it anew, or delete "
                f"{SUMS} if it was changed on purpose"
            )


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
