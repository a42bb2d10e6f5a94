"""Describe a training for a tracker, as plain data: names, parameters, and locations of its numbers.

All of it comes from records, so anything a tracker missed can be sent later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.labelled.task_files import SPLITS
from tlm_ray.plain import PlainClassifier
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import DIGITS, Stage, fingerprint_of, flatten, plain

BEGINS = ("stage_two", "stage_one", "after")  # inputs that are the stage whose model a training starts from
NAMED = ("row", "task", "seed")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Data that a training read, as stored by a stage."""

    name: str
    """name of the task or of the corpus' file"""
    context: str
    """corpus, train, dev or test"""
    digest: str
    """digest of its content"""
    folder: str
    """the stage's folder, below the root"""


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """The description of a training for a tracker."""

    name: str
    """row, task and seed"""
    last: str
    """the fingerprint of the stage whose record completes it"""
    folder: str
    """that stage's folder, below the root"""
    trained: Mapping[str, str]
    """folders of the stages that train an encoder, by prefix of their metrics, in order"""
    prefixes: Mapping[str, str]
    """prefixes of their metrics, by fingerprint"""
    parameters: dict[str, str]
    """tags that describe the training"""
    tags: dict[str, str]
    """fingerprints of its stages, by name"""
    sources: tuple[Source, ...]
    """the data it read"""

    @property
    def key(self) -> str:
        """Return the training's key within an experiment, in which two rows may share a training."""
        return fingerprint_of({"name": self.name, "last": self.last})[:DIGITS]

    @classmethod
    def of(cls, last: Stage, words: Mapping[str, Any], parameters: Mapping[str, Any]) -> "Tracked":
        """Describe a training; last: its last stage. words: row, task and seed, or other names."""
        trained = dict(_trained(last))
        own = _nearest(last)
        named = {key: str(value) for key, value in {**parameters, **words}.items() if value not in (None, "")}
        return cls(
            name=_name(last, words),
            last=last.fingerprint,
            folder=_folder(last),
            trained={prefix: _folder(stage) for prefix, stage in trained.items()},
            prefixes={stage.fingerprint: prefix for prefix, stage in trained.items()},
            parameters={key: storage.shown(value) for key, value in named.items()},
            tags={f"fingerprint {name}": stage.fingerprint[:DIGITS] for name, stage in own.items()},
            sources=tuple(_sources(own, str(words.get("task") or "task"))),
        )


def recipe_words(recipe: Recipe | PlainClassifier) -> dict[str, Any]:
    """Return a recipe as flat names and values: stage_one.steps, start.geometry.layers, method, method.k1, ..."""
    own = {"method": recipe.method.name} if isinstance(recipe, Recipe) else {}
    words = flatten(plain(recipe, "recipe"), lists=False)  # MLflow refuses names with brackets
    return {name: value for name, value in words if name and not _repeats(name, value)} | own


def _repeats(name: str, value: Any) -> bool:
    """Return whether a value is only the type that its name says, such as start.geometry: Geometry."""
    return isinstance(value, str) and value.lower() == name.rpartition(".")[2]


def shared_parameters(trainings: Sequence[Tracked]) -> dict[str, str]:
    """Return the parameters that all trainings of an encoder share, and all rows, tasks and seeds."""
    own = [one.parameters for one in trainings if one.trained] or [one.parameters for one in trainings]
    common = {name: value for name, value in own[0].items() if all(other.get(name) == value for other in own)}
    lists = {name: dict.fromkeys(one.parameters[name] for one in trainings if name in one.parameters) for name in NAMED}
    return {name: value for name, value in common.items() if name not in NAMED} | {
        f"{name}s": " | ".join(values) for name, values in lists.items() if values
    }


def history(training: Tracked, records: Records) -> dict[str, Sequence[Mapping[str, float]]]:
    """Return the history of each complete training stage, by prefix of its metrics."""
    facts = {prefix: _facts(folder, records) for prefix, folder in training.trained.items()}
    return {prefix: found["history"] for prefix, found in facts.items() if found.get("history")}


def totals(training: Tracked, records: Records) -> dict[str, float]:
    """Return a complete training's scores and costs: dev, test, seconds, and each stage's facts without its curves."""
    found: dict[str, float] = {}
    costs = {prefix: _numbers(_facts(folder, records)) for prefix, folder in training.trained.items()}
    for prefix, numbers in costs.items():  # a stage's dev score is in its history
        found |= {f"{prefix}_cost/{name}": value for name, value in numbers.items() if name != "dev"}
    if costs:
        found["seconds"] = sum(numbers.get("seconds", 0.0) for numbers in costs.values())
    last = _numbers(_facts(training.folder, records))
    scores = ("dev", "test") if training.last in training.prefixes else tuple(last)
    return found | {name: last[name] for name in scores if name in last}


def amounts(source: Source, records: Records) -> dict[str, Any]:
    """Return the amounts of data in its record."""
    facts = _facts(source.folder, records)
    if source.context == "corpus":
        return {name: facts[name] for name in ("documents", "passages", "text_bytes") if name in facts}
    return {"num_rows": facts[f"{source.context}_rows"]} if f"{source.context}_rows" in facts else {}


def is_complete(training: Tracked, records: Records) -> bool:
    """Return whether a training's last record exists."""
    return records.at(training.folder) is not None


def _facts(folder: str, records: Records) -> dict[str, Any]:
    return (records.at(folder) or {}).get("facts", {})


def _numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    return {k: v for k, v in facts.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _folder(stage: Stage) -> str:
    return stage.folder("")


def _name(last: Stage, words: Mapping[str, Any]) -> str:
    """Return the training's name: row, task and seed."""
    if not words:
        return f"{last.name} {last.fingerprint[:8]}"
    seed = f"seed {words['seed']}" if "seed" in words else ""
    return " · ".join(str(part) for part in (words.get("row", ""), words.get("task", ""), seed) if part)


def _trained(last: Stage) -> list[tuple[str, Stage]]:
    """List the stages that train the encoder with the prefixes of their metrics, in order."""
    chain = [last] if last.name in BEGINS else []
    stage = last
    while begins := next((stage.inputs[name] for name in BEGINS if name in stage.inputs), None):
        stage = begins
        chain.append(stage)
    chain.reverse()
    names = [stage.name for stage in chain]
    return [
        (name if names.count(name) == 1 else f"{name}_{names[: place + 1].count(name)}", stage)
        for place, (name, stage) in enumerate(zip(names, chain, strict=True))
    ]


def _nearest(last: Stage) -> dict[str, Stage]:
    """Return a training's own stages by name, without those of its teachers."""
    found: dict[str, Stage] = {}
    level = [last]
    while level:
        for stage in level:
            found.setdefault(stage.name, stage)
        level = list({stage.fingerprint: stage for one in level for stage in one.inputs.values()}.values())
    return found


def _sources(stages: Mapping[str, Stage], task_name: str) -> Iterator[Source]:
    """List the data of a training: its files, or for the embedded data the stage that made them."""
    if task := stages.get("task"):
        digests = task.parameters.get("digests") or [task.fingerprint] * len(SPLITS)
        for context, digest in zip(SPLITS, digests, strict=True):
            name = f"{task_name} {context}"  # MLflow merges equal names and digests
            yield Source(name=name, context=context, digest=digest, folder=_folder(task))
    if corpus := stages.get("cleaned") or stages.get("passages"):
        files = list(corpus.parts.get("corpus", {})) or ["docstrings"]
        name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        digest = str(corpus.parameters.get("corpus") or corpus.fingerprint)
        yield Source(name=name, context="corpus", digest=digest, folder=_folder(corpus))
