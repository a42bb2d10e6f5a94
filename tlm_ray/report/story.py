"""The background of an experiment's scores for its report, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tlm_ray.report.examined import Case, Examined

AFTER = "after"  # prefix of an earlier training's settings, shown only if they differ


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The learning history of one stage of one training."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    seed: int
    """the training's seed"""
    stage: str
    """for example "stage one" """
    history: Sequence[Mapping[str, float]]
    """entries by step: "step", losses by name, and at evaluations "dev", the score in percent"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a row on a task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    kind: str
    """kind of settings, such as "Recipe"; only rows of one kind are compared"""
    values: Mapping[str, Any]
    """settings by name"""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The general text that a row trains on for a task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    method: str
    """name of the retrieval method"""
    k: int
    """passages kept per query"""
    passages: int | None
    """number of distinct passages; None if the record lacks it for this k"""
    text_bytes: int
    """bytes of their text"""
    sources: Mapping[str, float] = field(default_factory=dict)
    """share of passages (of all ranks) per source of the corpus, largest first; empty if unknown"""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A labelled task."""

    task: str
    """its short name"""
    rows: Mapping[str, int]
    """rows per split; empty if unknown"""
    train_bytes: int
    """bytes of training text"""
    test_in_train: int | None
    """number of test rows whose text also occurs in the training set; None if not counted"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A stage behind the scores, and its cost."""

    name: str
    """for example "neighbours" """
    fingerprint: str
    """identifies its result"""
    seconds: float
    """duration of the original run"""
    flops: float = 0.0
    """6 x tokens x parameters, for a training"""
    flops_counted: float = 0.0
    """operations of all its matrix products"""
    estimated_s: float | None = None
    """duration estimated by a plan; None without a plan"""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a report: command, time, code, software and hardware."""

    command: str
    """the command line, without credentials"""
    when: str
    """time of the report, in UTC"""
    commit: str
    """commit of the working folder; "" without a checkout"""
    root: str
    """location of all results"""
    versions: Mapping[str, str]
    """versions of Python and of packages"""
    hardware: Mapping[str, str]
    """hardware of the driver and the cluster"""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Where the predictions of a row on a task are."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    folders: Sequence[str]
    """one per training"""
    texts: str
    """folder of the task's texts"""
    is_drawn: bool
    """whether the trainings depend on a seed"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """The background of an experiment's scores; reports omit empty parts."""

    learned: Sequence[Learned] = ()
    """one per training and stage"""
    settings: Sequence[Settings] = ()
    """one per row and task"""
    scored: Sequence[Scored] = ()
    """one per row and task, without ensembles"""
    examined: Sequence[Examined] = ()
    """the predictions of each task's best row"""
    selected: Sequence[Selected] = ()
    """one per row and task with general text"""
    cases: Sequence[Case] = ()
    """what was retrieved for a few training texts of each task"""
    tasks: Sequence[TaskData] = ()
    """one per task"""
    made: Sequence[Made] = ()
    """all stages, each once, inputs first"""
    hours: Mapping[str, float] = field(default_factory=dict)
    """total hours of all trainings by unit, such as "CPU hours of training" """
    provenance: Provenance | None = None
