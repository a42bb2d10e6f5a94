"""The protocol of a retrieval method: a frozen dataclass whose fields are its settings.

To add your own, derive from `Method` and pass an instance as a recipe's `method`. Modules of methods import Ray and its
dependents on use, so a recipe can name a method without starting anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from tlm_ray.identity import is_unset
from tlm_ray.retrieval.engine.analyzer import Analyzer


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of a search: only `depth` changes the result; the others control execution."""

    depth: int
    """passages per query"""
    shards: int = 0
    """number of parts of the corpus; 0: one per 50,000 passages"""
    workers: int = 1
    """number of parallel processes"""
    gpus: float = 0
    """GPUs per process"""
    earlier: Sequence[Mapping[str, str]] = ()
    """selections by the same method for the same task in other corpora: `folder`, and the input folders that `find`
    had"""


class Sources(Protocol):
    """The stages that a method may read, as opaque references."""

    @property
    def passages(self) -> Any:
        """The corpus cut into passages, a folder for `PassageStore.open`."""

    @property
    def task(self) -> Any:
        """The task, a folder for `load_task`."""

    def statistics(self, analyzer: Analyzer) -> Any:
        """Document frequencies and mean length of the whole corpus, a folder for `read_statistics`."""

    def neighbours(self, method: "Method") -> Any:
        """The selection of another method for the same task and depth, a folder for `SelectionStore.open`."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method that selects passages for a task.

    name: identifies the method, with its version and settings; choose one that is not in `METHODS`. version: to be
    increased when the selected passages or the written bytes change. lists_leaks: whether `find` writes the ids of
    contaminated passages, as `search_corpus` does.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    lists_leaks: ClassVar[bool] = True

    def of_task(self, task: str) -> "Method":
        """Return the method for a task of this name; override it for settings that depend on the task."""
        return self

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return what identifies the selection besides its inputs: name, depth and settings."""
        return {"method": self.name, "depth": depth} | {
            f.name: getattr(self, f.name) for f in fields(self) if not is_unset(self, f)
        }

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the stages that `find` reads, by name."""
        return {"passages": sources.passages, "task": sources.task}

    def queries(self, texts: list[str]) -> list[str]:
        """Return the search query of each training text."""
        return texts

    @abstractmethod
    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Write the selection to a folder and return facts for the record.

        inputs: folders of the stages in `inputs`, by name. Use one of these writers of `tlm_ray.retrieval`:

        - `search_job.search_corpus`, if passages are ranked per query;
        - `draw_job.draw_largest`, if each passage has a single key;
        - `selection.write_selection` or `write_drawn`, if the selection fits in memory.
        """


def check_like(like: Method) -> None:
    """Raise ValueError for a method after which no other can draw, because it does not list contaminated passages."""
    if not like.lists_leaks:
        raise ValueError(
            f"like {like.name!r}: does not list the passages that leak dev or test texts; give a method that searches, "
            "such as Bm25()"
        )
