"""Explain why stages must run: compare each with the nearest cached result, setting by setting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, fingerprint_of, flatten, unique

OF_INPUT = 1_000  # weight of an input of another lineage, in settings
NOTHING = "nothing"
FILE = "file "  # prefix of a file's name among the parts of a hash
SHORT = 12  # characters of a hash to show


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why one stage must run."""

    stage: Stage
    """the stage"""
    changes: tuple[tuple[str, Any, Any], ...]
    """settings that differ: name, value of the nearest result, wanted value"""
    follows: tuple[str, ...]
    """its inputs that must run themselves"""
    is_first: bool
    """whether there is no result of this kind yet"""

    @property
    def words(self) -> str:
        """The reason in words, such as "rho2 20, nearest result 0"."""
        said = [_said(*change) for change in self.changes]
        if self.is_first:
            said = ["the first of its kind"]
        return "; ".join([*said, *(f"follows from {name}" for name in self.follows)])


def reasons(stages: Sequence[Stage], records: Records) -> list[Reason]:
    """Return a reason for each stage that must run, inputs first."""
    there = records.found(stages)
    wanted = [stage for stage in unique(stages) if stage.fingerprint not in there]
    made = {name: [Finished.of(each) for each in records.named(name)] for name in {stage.name for stage in wanted}}
    stand_ins = {
        fingerprint: fingerprint for fingerprint in there
    }  # fingerprint of a stage -> its own if cached, else that of the nearest result
    found_reasons = []
    for stage in wanted:
        expected = {name: stand_ins.get(source.fingerprint, "") for name, source in stage.inputs.items()}
        own = dict(flatten({"version": stage.version, **stage.recipe["parameters"]}))
        distances = [each.distance(own, expected) for each in made[stage.name]]
        least = min(distances, default=0)
        level = [each for each, far in zip(made[stage.name], distances, strict=True) if far == least]
        nearest = min(level, key=lambda each: each.gap(own), default=None)
        stand_ins[stage.fingerprint] = nearest.fingerprint if nearest else ""
        found_reasons.append(
            Reason(
                stage=stage,
                changes=tuple(nearest.changes(own, stage, expected)) if nearest else (),
                follows=tuple(n for n, source in stage.inputs.items() if source.fingerprint not in there),
                is_first=nearest is None,
            )
        )
    return found_reasons


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished stage."""

    recipe: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Finished":
        return cls(recipe=record["recipe"], parts=record.get("parts", {}))

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.recipe)

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.recipe["inputs"]

    @cached_property
    def settings(self) -> dict[str, Any]:
        return dict(flatten({"version": self.recipe["version"], **self.recipe["parameters"]}))

    def distance(self, own: Mapping[str, Any], expected: Mapping[str, str]) -> int:
        """Count the settings that differ from the wanted ones; inputs of another lineage count OF_INPUT each."""
        strangers = sum(self.inputs.get(name) != fingerprint for name, fingerprint in expected.items())
        strangers += len(self.inputs.keys() - expected.keys())
        names = own.keys() | self.settings.keys()
        return OF_INPUT * strangers + sum(self.settings.get(n, NOTHING) != own.get(n, NOTHING) for n in names)

    def gap(self, own: Mapping[str, Any]) -> float:
        """Return the sum of relative differences between its numbers and the wanted ones."""
        pairs = [(self.settings.get(name), value) for name, value in own.items()]
        numbers = [(a, b) for a, b in pairs if isinstance(a, int | float) and isinstance(b, int | float) and a != b]
        return sum(abs(a - b) / (abs(a) + abs(b)) for a, b in numbers)

    def changes(
        self, own: Mapping[str, Any], stage: Stage, expected: Mapping[str, str]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield the differences: settings by name, then inputs that exist but differ."""
        parts = {name: (self.parts[name], stage.parts[name]) for name in self.parts.keys() & stage.parts.keys()}
        for there, wanted in parts.values():
            for file in sorted(there.keys() | wanted.keys()):
                if there.get(file) != wanted.get(file):
                    yield f"{FILE}{file}", there.get(file, NOTHING), wanted.get(file, NOTHING)
        for name in sorted(own.keys() | self.settings.keys()):
            pair = (self.settings.get(name, NOTHING), own.get(name, NOTHING))
            if pair[0] != pair[1] and name.partition("[")[0] not in parts:
                yield name, *pair
        for name in sorted(expected.keys() | self.inputs.keys()):
            source = stage.inputs.get(name)
            pair = (self.inputs.get(name, NOTHING), source.fingerprint if source else NOTHING)
            if self.inputs.get(name, NOTHING) != expected.get(name, NOTHING):
                yield name, *pair


def _said(name: str, there: Any, wanted: Any) -> str:
    if name.startswith(FILE):
        return f"{name} is {'new' if there == NOTHING else 'removed' if wanted == NOTHING else 'changed'}"
    return f"{name} {_shown(wanted)}, nearest result {_shown(there)}"


def _shown(value: Any) -> str:
    text = str(value)
    return f"{text[:SHORT]}..." if len(text) > 40 else text
