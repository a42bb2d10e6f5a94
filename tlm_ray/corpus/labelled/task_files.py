"""Find the files of a task's train, dev and test rows: in a folder, by their names, or one file for all."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from tlm_ray import storage
from tlm_ray.corpus.general.documents import FORMATS, file_format
from tlm_ray.corpus.labelled.hub import HUB_TASKS, HubTask
from tlm_ray.storage.listing import base_of, list_files, name_below

SPLITS = ("train", "dev", "test")
SPLIT_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val", "eval", "evaluation", "development"),
    "test": ("test", "testing"),
}
SHARD = re.compile(r"(\w+)-(\d+)-of-(\d+)(?:-[0-9a-f]+)?")  # file names as the hub writes them
NEEDED = "give train, and optionally dev and test, each as .parquet, .csv or .jsonl"

Files = Mapping[str, Sequence[str]]  # files per split, in order


def split_files(source: HubTask) -> Files:
    """Find the files of each split; a hub task names its own.

    A file's split is given by its name (`train.csv`, `train-00000-of-00002.parquet`) or its folder (`train/0.parquet`).
    A single file, or a folder with one data file, is all train. FileNotFoundError or ValueError names what is missing
    or ambiguous.
    """
    if source in HUB_TASKS.values():
        return {s: [storage.join(source.uri, f)] for s, f in zip(SPLITS, source.files, strict=True)}
    names = {file.uri: name_below(base_of(source.uri), file.uri) for file in list_files(source.uri)}
    if list(names) == [storage.absolute(source.uri)]:
        return {"train": list(names)}
    found: dict[str, list[str]] = {}
    for uri, name in names.items():
        if split := split_of(name):
            found.setdefault(split, []).append(uri)
    data = [uri for uri, name in names.items() if is_table(name)]
    if not found and len(data) == 1:
        return {"train": data}
    if "train" not in found:
        raise FileNotFoundError(f"task folder {source.uri!r} has no train file; {NEEDED}")
    for split, files in found.items():
        _check_one(split, files, names, source.uri)
    _refuse_half_named([name for uri, name in names.items() if uri in data and not split_of(name)], found, source.uri)
    return {split: found[split] for split in SPLITS if split in found}


def is_table(name: str) -> bool:
    """Return whether a file's extension is one of a task's formats."""
    try:
        return file_format(name) in ("parquet", "jsonl", "csv")
    except ValueError:
        return False


def split_of(name: str) -> str:
    """Return the split of a file below a task's folder; "" for any other file."""
    *folders, file = PurePosixPath(name).parts
    stem = file.partition(".")[0]
    shard = SHARD.fullmatch(stem)
    found = split_named(shard[1] if shard else stem)
    return found or (next(filter(None, map(split_named, folders[::-1])), "") if is_table(name) else "")


def split_named(word: str) -> str:
    """Return the split that a word names, such as dev for validation; "" for none."""
    return next((split for split, names in SPLIT_NAMES.items() if word.lower() in names), "")


def _refuse_half_named(others: Sequence[str], found: Mapping[str, object], folder: str) -> None:
    """Raise ValueError if a split is missing but another file may be it, rather than cut dev rows from train."""
    for name in others:
        words = re.split(r"[^a-z]+", name.lower())
        if split := next((split for split in SPLITS if split not in found and set(words) & {*SPLIT_NAMES[split]}), ""):
            raise ValueError(
                f"task folder {folder!r} has no {split} file, but {name!r}; if that is {split}, rename it {split}"
                f"{PurePosixPath(name).suffix}, else remove it"
            )


def _check_one(split: str, files: Sequence[str], names: Mapping[str, str], folder: str) -> None:
    """Raise ValueError unless a split is one file, all shards of one, or one folder of parts."""
    paths = [PurePosixPath(names[uri]) for uri in files]
    series = {(path.parent, path.suffix, _series(path)) for path in paths}
    if len(series) > 1 or (len(paths) > 1 and _series(paths[0]) == paths[0].name):
        raise ValueError(f"task folder {folder!r} has two {split} files: {', '.join(files[:2])}; keep one")
    shard = SHARD.fullmatch(paths[0].name.partition(".")[0])
    if shard and int(shard[3]) != len(paths):
        raise ValueError(
            f"task folder {folder!r}: file {files[0]!r} is one of {int(shard[3])} shards, but {len(paths)} are there; "
            "fetch the others"
        )


def _series(path: PurePosixPath) -> str:
    """Return the common name of a split's files: a shard's name without its number, or their folder."""
    shard = SHARD.fullmatch(path.name.partition(".")[0])
    if shard:
        return f"{shard[1]} of {shard[3]}"
    return path.name if split_named(path.name.partition(".")[0]) else str(path.parent)


def tasks_below(root: str) -> list[str]:
    """Return the names of the tasks below a folder: folders with a train file, and files that may be whole tasks."""
    names = [name_below(base_of(root), file.uri) for file in list_files(root, missing_ok=True)]
    folders = {name.rpartition("/")[0] for name in names if split_of(name.rpartition("/")[2]) == "train"}
    whole = {name for name in names if "/" not in name and is_table(name) and not split_of(name)}
    return sorted((folders | whole) - {""})


def located(root: str, name: str) -> str:
    """Return the location of a task below a root: a folder, or a file with or without its ending.

    FileNotFoundError lists the existing tasks.
    """
    endings = ("", *(ending for ending in FORMATS if is_table(f"a{ending}")))
    for uri in (storage.join(root, f"{name}{ending}") for ending in endings):
        if list_files(uri, missing_ok=True):
            return uri
    there = ", ".join(tasks_below(root)) or "no task"
    raise FileNotFoundError(f"task {name!r}: not found; --task-root {root!r} has {there}")
