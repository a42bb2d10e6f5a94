"""What a retrieval method is: a frozen dataclass whose fields are its settings, and the stage that they make.

A method of your own is a subclass in your own file; give an instance of it as a recipe's `method`. Modules of methods
import Ray, and all that needs it, where it is used: a recipe names a method without starting anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from tlm_ray.identity import is_unset
from tlm_ray.retrieval.engine.analyzer import Analyzer


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a selection is made. Only `depth` shows in the result; the rest says how to run it."""

    depth: int
    """passages per query"""
    shards: int = 0
    """parts of the corpus; 0 for one per 50,000 passages"""
    workers: int = 1
    """processes side by side"""
    gpus: float = 0
    """GPUs that each of them may use"""
    earlier: Sequence[Mapping[str, str]] = ()
    """selections that the same method made for the same task in other corpora: `folder`, and the folders that `find`
    had then"""


class Sources(Protocol):
    """The stages that a method may read; a method passes them on and looks into none."""

    @property
    def passages(self) -> Any:
        """The corpus cut into passages: a folder for `PassageStore.open`."""

    @property
    def task(self) -> Any:
        """The task: a folder for `load_task`."""

    def statistics(self, analyzer: Analyzer) -> Any:
        """Document frequencies and mean length over the whole corpus: a folder for `read_statistics`."""

    def neighbours(self, method: "Method") -> Any:
        """What another method chose for the same task and depth: a folder for `SelectionStore.open`."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to choose passages for a task.

    name: identifies it together with version and settings; take one that `METHODS` does not have. version: goes up when
    the code chooses other passages, or writes other bytes.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1

    def of_task(self, task: str) -> "Method":
        """Return the method for a task of this name; one that has settings of its own for each may differ."""
        return self

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return all that identifies the selection beside the inputs: name, depth and settings."""
        return {"method": self.name, "depth": depth} | {
            f.name: getattr(self, f.name) for f in fields(self) if not is_unset(self, f)
        }

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the stages that `find` reads, by a name for each."""
        return {"passages": sources.passages, "task": sources.task}

    def queries(self, texts: list[str]) -> list[str]:
        """Return what is searched with for each of the task's training texts."""
        return texts

    @abstractmethod
    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Write the selection to a folder and return facts for the record.

        inputs: the folders of `inputs`, by its names. The functions that write are, in `tlm_ray.retrieval`,
        `search_job.search_corpus` for methods that rank passages for each query, `draw_job.draw_largest` for those that
        give each passage a number of its own, and `selection.write_selection` and `write_drawn` for those whose choice
        fits in memory.
        """
