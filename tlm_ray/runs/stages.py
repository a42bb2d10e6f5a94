"""Stages: results named by what made them.

A stage is an inert value that knows its recipe. Its fingerprint is the sha256 of the canonical JSON of its name,
version, parameters and inputs' fingerprints; its folder is `root/name/fingerprint`. `record.json` is written last and
is completion: a folder without it is unfinished work, which the next run continues.
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
DIGITS = 20  # of a fingerprint, where it is a name


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """One step of the flow and all that identifies its result.

    name: the room it is made in. version: goes up when the code changes what it makes. parameters: every number that
    matters, defaults included. inputs: the stages it reads. make: called with the stage's folder and its inputs'
    folders, writes files there and returns the facts for the record; not part of the identity. cost: what `--dry-run`
    says it takes. lane: stages of the "data" lane use the whole cluster one at a time, those of "train" run side by
    side. label: what a log calls it, such as a task's name. scratch: a folder within the stage's that only making it
    needs. parts: what a parameter that is a hash stands for, such as a corpus' files: by the parameter's name, digests
    by name.
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
        """Return where the stage's result lies; root: "" for its place below any root, which no other stage has."""
        return storage.join(root, self.name, self.fingerprint[:DIGITS])

    def record(self, root: str) -> dict[str, Any] | None:
        """Return the stage's record if it is complete, else None; ValueError if it is another recipe's."""
        uri = storage.join(self.folder(root), RECORD)
        if not storage.exists(uri):
            return None
        record = storage.read_record(uri)
        if not all(isinstance(record.get(name), dict) for name in ("recipe", "facts")):
            raise ValueError(f"record {uri!r} is none: it has no recipe or no facts; {storage.MAKE_ANEW}")
        if record["recipe"] != self.recipe:
            raise ValueError(
                f"record {uri!r} holds another recipe than its name says; delete the folder {self.folder(root)!r}"
            )
        return record

    @cached_property
    def task(self) -> str:
        """The label of the task that it is made of, "" if it is made of none."""
        return next((stage.label for stage in self.upstream() if stage.name == "task"), "")

    def upstream(self) -> Iterator["Stage"]:
        """Yield all stages that this one needs, inputs first, then itself."""
        for stage in self.inputs.values():
            yield from stage.upstream()
        yield self


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of one training, each of which reads some of those before it; None: it is not needed."""

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
    """the stages of the recipe whose stage one this training begins with"""

    @property
    def stages_one(self) -> tuple[Stage, ...]:
        """The stages that train on text, those of the recipes before first."""
        earlier = self.before.stages_one if self.before else ()
        return earlier if self.stage_one is None else (*earlier, self.stage_one)

    @property
    def trained(self) -> tuple[Stage, ...]:
        """The stages that train the encoder, in their order."""
        return self.stages_one if self.stage_two is None else (*self.stages_one, self.stage_two)

    @property
    def last(self) -> Stage:
        """The stage whose classifier is the training's result."""
        return self.trained[-1]


def fingerprint_of(recipe: Mapping[str, Any]) -> str:
    """Return the sha256 of a stage's identity as plain JSON values, in hexadecimal."""
    return hashlib.sha256(canonical(recipe)).hexdigest()


def unique(stages: Sequence[Stage]) -> list[Stage]:
    """List stages and all that they need, each once, inputs first."""
    return list({stage.fingerprint: stage for last in stages for stage in last.upstream()}.values())


def found(stages: Sequence[Stage], root: str) -> dict[str, dict[str, Any]]:
    """Return the records of the stages that need not be made, by fingerprint, of these and all that they need.

    A stage is found if its record is complete and all its inputs are found: what was made from a result that someone
    deleted is made again with it, never trusted by half.
    """
    records: dict[str, dict[str, Any]] = {}
    for stage in unique(stages):
        if all(source.fingerprint in records for source in stage.inputs.values()):
            record = stage.record(root)
            records |= {stage.fingerprint: record} if record is not None else {}
    return records


def canonical(value: Any) -> bytes:
    """Return the one JSON text of a plain value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain(value: Any, name: str) -> Any:
    """Return a parameter as plain JSON values; ValueError for one that would not identify a result.

    Dataclasses become objects that carry their type's name, and its `version` where it has one: raise that of a part of
    your own when its code makes other results. Callables, NaN and objects with a default repr are refused.
    A field that came later than the first results (metadata LATER) is left out at its default, so that what was made
    before it is still found.
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
        raise ValueError(f"parameter {name} is {value}: it never equals itself; give a finite number")
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 in a recipe and 20.0 from a command line are one number
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(
        f"parameter {name} is a {type(value).__name__}: only numbers, strings, lists, mappings and dataclasses of them "
        "identify a result; give its name or its settings instead"
    )
