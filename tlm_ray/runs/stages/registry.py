"""Register the experiments under a root with the stages they need, so that unused stages can be deleted."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tlm_ray import storage
from tlm_ray.runs.stages.locks import locked
from tlm_ray.runs.stages.provenance import shown_command
from tlm_ray.runs.stages.records import READERS
from tlm_ray.runs.stages.stage import DIGITS, RECORD, Stage, canonical, fingerprint_of, unique
from tlm_ray.storage.listing import base_of, list_files, name_below

FOLDER = "experiments"  # below the root
NO_HOURS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Noted:
    """An experiment under a root."""

    name: str
    """name of the experiment"""
    command: str
    """its command line, without secrets"""
    stages: frozenset[str]
    """folders, below the root, of all stages it needs"""
    uri: str
    """location of its registry file"""
    points: tuple[Mapping[str, Any], ...] = ()
    """points that a sweep tried, by their labels"""
    hours: Mapping[str, float] = field(default_factory=dict)
    """worker hours that a sweep spent on its trainings, by fingerprint, also on those that were stopped"""
    stopped: tuple[Mapping[str, Any], ...] = ()
    """points that the scheduler of a sweep stopped early, each with its last step and score"""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A stage's folder under a root."""

    folder: str
    """folder below the root: the stage's name and the start of its fingerprint"""
    size: int
    """bytes of all its files"""
    complete: bool
    """whether its record exists"""

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.folder.partition("/")[0]


def note(
    root: str,
    name: str,
    stages: Sequence[Stage],
    *,
    key: str = "",
    points: Sequence[Mapping[str, Any]] = (),
    hours: Mapping[str, float] = NO_HOURS,
    stopped: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Register an experiment with its stages and all their inputs.

    key: distinguishes experiments of the same name; "" means their stages. The same experiment always has the same
    file. What was noted under a key stays, because a sweep that is run again meets its trials one after another.
    points: those that a sweep has tried. hours, stopped: see `Noted`.
    """
    folders = {stage.folder("") for stage in unique(stages)}
    is_growing, key = bool(key), key or fingerprint_of({"stages": sorted(folders)})
    uri = storage.join(root, FOLDER, f"{name}-{key[:DIGITS]}.json")
    before = storage.read_record(uri, fix="delete this file") if is_growing and storage.exists(uri) else {}
    spent = dict(before.get("hours", {}))
    spent |= {stage: max(own, spent.get(stage, 0.0)) for stage, own in hours.items()}
    found = {
        "points": _distinct((*before.get("points", ()), *points)),
        "hours": spent,
        "stopped": _distinct((*before.get("stopped", ()), *stopped)),
    }
    needed = sorted(folders.union(before.get("stages", ())))
    kept = {what: own for what, own in found.items() if own}
    storage.write_record(uri, {"name": name, "command": shown_command(sys.argv), "stages": needed} | kept)


def _distinct(each: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return list({canonical(dict(one)): dict(one) for one in each}.values())


def noted(root: str) -> list[Noted]:
    """Return the experiments under a root."""
    uris = [file.uri for file in list_files(storage.join(root, FOLDER), ".json", missing_ok=True)]
    with ThreadPoolExecutor(READERS) as readers:
        read = list(readers.map(lambda uri: storage.read_record(uri, fix="delete this file"), uris))
    return [
        Noted(
            name=each["name"],
            command=each["command"],
            stages=frozenset(each["stages"]),
            uri=uri,
            points=tuple(each.get("points", ())),
            hours=each.get("hours", {}),
            stopped=tuple(each.get("stopped", ())),
        )
        for uri, each in zip(uris, read, strict=True)
    ]


def held(root: str) -> list[Held]:
    """Return the stages' folders under a root, complete or not, from one listing."""
    base = base_of(root)
    files: dict[str, dict[str, int]] = {}
    for file in list_files(root, missing_ok=True):
        stage, _, rest = name_below(base, file.uri).partition("/")
        fingerprint, inside, name = rest.partition("/")
        if inside and len(fingerprint) == DIGITS and set(fingerprint) <= set("0123456789abcdef"):
            files.setdefault(f"{stage}/{fingerprint}", {})[name] = file.size
    found = sorted(files.items())
    return [Held(folder=folder, size=sum(own.values()), complete=RECORD in own) for folder, own in found]


def delete(root: str, folder: str) -> None:
    """Delete a stage's folder; StageLocked if a job is making the stage."""
    with locked(root, folder):
        storage.delete(
            storage.join(root, folder, RECORD)
        )  # the record first, so that a partly deleted folder never counts as a result
        storage.delete(storage.join(root, folder))
