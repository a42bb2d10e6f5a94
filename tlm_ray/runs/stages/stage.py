"""Stages: results identified by the recipe that made them.

A stage is an immutable value. Its fingerprint is the sha256 of the canonical JSON of its name, version, parameters and
inputs' fingerprints. Its folder is `root/name/fingerprint`. `record.json` is written last and marks it complete; the
next run resumes a folder without it.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tlm_ray import storage
from tlm_ray.identity import is_unset

RECORD = "record.json"
DIGITS = 20  # of a fingerprint in a folder's name


def rooms(side_by_side: int) -> dict[str, int]:
    """Return how many stages of each lane run at a time; side_by_side: trainings."""
    return {"data": 1, "train": side_by_side, "plain": 1}


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """One step of the flow, with everything that identifies its result.

    name: kind of stage. version: raised when the code changes the result. parameters: every setting that affects the
    result, defaults included. inputs: the stages it reads. make: called with the stage's folder and its inputs'
    folders; writes files and returns facts for the record; not part of the identity. cost: shown by `--dry-run`.
    lane: "data" stages use the whole cluster, one at a time. "train" stages run in parallel. "plain" ones need one
    CPU, and run one at a time beside all others. label: its name in logs, such as a task. scratch: a subfolder needed
    only while it is made. parts: for each parameter that is a hash, the digests by name that it summarises, such as a
    corpus' files.
    """

    name: str
    version: int
    parameters: Mapping[str, Any]
    make: Callable[[str, Mapping[str, str]], Mapping[str, Any]]
    inputs: Mapping[str, "Stage"] = field(default_factory=dict)
    lane: str = "data"
    scratch: str = ""
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    label: str = ""

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The stage's identity as plain JSON values."""
        return {
            "stage": self.name,
            "version": self.version,
            "parameters": plain(dict(self.parameters), self.name),
            "inputs": {name: stage.fingerprint for name, stage in sorted(self.inputs.items())},
        }

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of the recipe, in hexadecimal."""
        return fingerprint_of(self.recipe)

    def folder(self, root: str) -> str:
        """Return the stage's folder; root: "" for its path below any root, which is unique."""
        return storage.join(root, self.name, self.fingerprint[:DIGITS])

    def record(self, root: str) -> dict[str, Any] | None:
        """Return the stage's record if it is complete, else None; ValueError if the record is of another recipe."""
        return read_record(root, self.folder(""))

    @cached_property
    def task(self) -> str:
        """The label of the task among its inputs; "" if there is none."""
        return next((stage.label for stage in self.upstream() if stage.name == "task"), "")

    def upstream(self) -> Iterator["Stage"]:
        """Yield all stages that this one depends on, inputs first, then itself."""
        for stage in self.inputs.values():
            yield from stage.upstream()
        yield self


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of one training, in order; None for a stage that is not needed."""

    task: Stage
    passages: Stage | None
    neighbours: Stage | None
    tokenizer: Stage
    blocks: Stage
    counts: Stage | None
    stage_one: Stage | None
    stage_two: Stage | None
    metrics: Stage
    before: "Stages | None" = None
    """the stages of the recipe whose stage one this training starts from"""

    @property
    def stages_one(self) -> tuple[Stage, ...]:
        """The stages that train on text, those of earlier recipes first."""
        earlier = self.before.stages_one if self.before else ()
        return earlier if self.stage_one is None else (*earlier, self.stage_one)

    @property
    def trained(self) -> tuple[Stage, ...]:
        """The stages that train the encoder, in order."""
        return self.stages_one if self.stage_two is None else (*self.stages_one, self.stage_two)

    @property
    def last(self) -> Stage:
        """The stage whose classifier is the training's result."""
        return self.trained[-1]


def fingerprint_of(recipe: Mapping[str, Any]) -> str:
    """Return the sha256 of a stage's identity as plain JSON values, in hexadecimal."""
    return hashlib.sha256(canonical(recipe)).hexdigest()


def unique(stages: Sequence[Stage]) -> list[Stage]:
    """List stages and all their dependencies, each once, inputs first."""
    return list({stage.fingerprint: stage for last in stages for stage in last.upstream()}.values())


def read_record(root: str, folder: str) -> dict[str, Any] | None:
    """Return the record in a stage's folder below the root, None if there is none; ValueError if it is invalid."""
    uri = storage.join(root, folder, RECORD)
    try:
        record = storage.read_record(uri)
    except FileNotFoundError:
        return None
    if not all(isinstance(record.get(name), dict) for name in ("recipe", "facts")):
        raise ValueError(f"record {uri!r} is invalid: it has no recipe or no facts; {storage.MAKE_ANEW}")
    if fingerprint_of(record["recipe"])[:DIGITS] != folder.rpartition("/")[2]:
        where = storage.join(root, folder)
        raise ValueError(f"record {uri!r} is of another recipe than its folder's name; delete the folder {where!r}")
    return record


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a plain value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain(value: Any, name: str) -> Any:
    """Return a parameter as plain JSON values; ValueError for one that cannot identify a result.

    Dataclasses become objects with their type's name, and its `version` if it has one. Raise the version of your own
    part when its code changes results. Callables, NaN and objects with a default repr are refused. A field with the
    metadata LATER is omitted at its default, so that results made before it are still reused.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if not is_unset(value, f)}
        kind = {"type": type(value).__name__} | ({"version": value.version} if hasattr(value, "version") else {})
        return kind | {k: plain(v, f"{name}.{k}") for k, v in fields.items()}
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{name}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, f"{name}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"parameter {name} is {value}: NaN never equals itself; give a finite number")
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 in a recipe and 20.0 from a command line are the same number
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(
        f"parameter {name} is a {type(value).__name__}: only numbers, strings, lists, mappings and dataclasses of them "
        "identify a result; give its name or its settings instead"
    )


def flatten(value: Any, name: str = "", *, lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the numbers and words within dataclasses, mappings and lists of them, by dotted path.

    An object also yields its type, by its own path. lists: descend into lists of objects, by [0], [1], ...
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        value = {"type": type(value).__name__} | own
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            path = f"{name}.{key}" if name else str(key)
            yield from flatten(inner, name if key == "type" else path, lists=lists)
    elif lists and isinstance(value, list | tuple) and any(map(_is_object, value)):
        for place, inner in enumerate(value):
            yield from flatten(inner, f"{name}[{place}]")
    else:
        yield name, value


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) or dataclasses.is_dataclass(value)
