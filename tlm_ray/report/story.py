"""How an experiment's scores came about: what its report tells beside them. All of it is plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

AFTER = "after"  # prefix of an earlier training's settings, shown only if they differ


@dataclass(frozen=True, kw_only=True)
class Learned:
    """How one stage of one training learned."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    seed: int
    """the training's"""
    stage: str
    """such as "stage one" """
    history: Sequence[Mapping[str, float]]
    """by steps: "step", losses by their names, and "dev", the score in percent, where it was evaluated"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a row is made on a task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    kind: str
    """what has such settings, such as "Recipe": rows of one kind are compared"""
    values: Mapping[str, Any]
    """the settings by name"""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The general text that a row learns from on a task."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    method: str
    """how its passages were chosen"""
    k: int
    """passages kept per query"""
    passages: int | None
    """each once; None where the record does not say it for this k"""
    text_bytes: int
    """of these passages"""
    sources: Mapping[str, float] = field(default_factory=dict)
    """shares of the passages of all ranks by the corpus' source, the largest first; empty where the record lacks it"""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A labelled task."""

    task: str
    """its short name"""
    rows: Mapping[str, int]
    """of each split; empty where the record does not say it"""
    train_bytes: int
    """of the training rows' text"""
    test_in_train: int | None
    """test rows whose text stands in the training set too; None where nobody has counted them"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A stage that the scores rest on, and what making it cost."""

    name: str
    """such as "neighbours" """
    fingerprint: str
    """its result's name"""
    seconds: float
    """that making it took, when it was made"""
    flops: float = 0.0
    """6 x tokens x parameters of a training"""
    flops_counted: float = 0.0
    """operations of all its matrix products"""
    estimated_s: float | None = None
    """what a plan said before it was made, None where nobody did"""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where and how a report was made."""

    command: str
    """without credentials"""
    when: str
    """the time, UTC"""
    commit: str
    """of the working folder's checkout, "" for none"""
    root: str
    """location of all results"""
    versions: Mapping[str, str]
    """of python and of packages"""
    hardware: Mapping[str, str]
    """of the driver and the cluster"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """How an experiment's scores came about; what is empty is left out of its report."""

    learned: Sequence[Learned] = ()
    """of each training and stage"""
    settings: Sequence[Settings] = ()
    """of each row and task"""
    selected: Sequence[Selected] = ()
    """of each row and task with general text"""
    tasks: Sequence[TaskData] = ()
    """of each task"""
    made: Sequence[Made] = ()
    """every stage, each once, inputs first"""
    hours: Mapping[str, float] = field(default_factory=dict)
    """of all trainings, by what they are counted in, such as "CPU hours of training" """
    provenance: Provenance | None = None
