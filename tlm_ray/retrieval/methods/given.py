"""A selection made elsewhere: a file of texts with ranks, such as the authors' published `small_external.csv`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import storage
from tlm_ray.corpus.documents import as_strings, read_columns
from tlm_ray.corpus.tasks import Task, load_task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.methods.method import Method, Search, Sources
from tlm_ray.storage.digests import identity_of_file

TASK = "{task}"  # in a location: the task's name
COLUMNS = ("text", "rank")


@dataclass(frozen=True, kw_only=True)
class Given(Method):
    """The texts of a file (Parquet, CSV or JSONL), each with the rank that somebody's retrieval gave it.

    The released code's files have these columns: `text`, and `rank`, the best place, counted from 0, that a passage had
    for any query. Texts that share 13 words with a dev or test text are left out, as with every method.
    """

    name: ClassVar[str] = "given"
    location: str
    """of the file; {task} in it stands for the task's name"""

    def of_task(self, task: str) -> "Given":
        """Return the method with the location of the task's own file."""
        return replace(self, location=self.location.replace(TASK, task))

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name, depth and what identifies the file, wherever it lies."""
        return {"method": self.name, "depth": depth, "file": identity_of_file(self.location)}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the task: no corpus is read."""
        return {"task": sources.task}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Read the texts of ranks below the depth and write them, the best ranks first."""
        from tlm_ray.retrieval.selection import write_texts

        task = load_task(inputs["task"])
        table, leaks = _read(self.location, run.depth, task)
        source = pa.array([storage.shown(self.location)] * len(table), pa.string())
        facts = write_texts(folder, table.append_column("source", source))
        return {"contaminated": leaks} | facts


def _read(location: str, depth: int, task: Task) -> tuple[pa.Table, int]:
    """Return passage (the row's number), text and rank of the rows to keep, by rank, and how many were left out."""
    from tlm_ray.retrieval.selection import take_rows

    contamination = Contamination(task.texts("dev") + task.texts("test"))
    kept, leaks, first = [], 0, 0
    for batch in read_columns(location, list(COLUMNS)):
        texts, ranks = as_strings(batch.column(0), "text", location), _ranks(batch.column(1), location, first)
        rows = np.flatnonzero((ranks < depth) & (pc.binary_length(texts).fill_null(0).to_numpy() > 0))
        found = contamination.find(texts.take(pa.array(rows)))
        leaks, rows = leaks + int(found.sum()), rows[~found]
        kept.append(pa.table({"passage": first + rows, "text": texts.take(pa.array(rows)), "rank": ranks[rows]}))
        first += len(batch)
    table = pa.concat_tables(kept) if kept else pa.table({name: [] for name in ("passage", *COLUMNS)})
    if not len(table):
        raise ValueError(f"file {location!r}: has no text of a rank below {depth}; give another file, or a larger K")
    order = np.argsort(table["rank"].to_numpy(), kind="stable")
    return take_rows(table, order), leaks


def _ranks(column: pa.Array, location: str, first: int) -> np.ndarray:
    """Return a column's ranks, int32; ValueError names the first row that has none."""
    values = column.to_pylist()
    wrong = next((row for row, value in enumerate(values) if not _is_rank(value)), None)
    if wrong is not None:
        raise ValueError(
            f"file {location!r}, row {first + wrong + 1}: rank is {values[wrong]!r}; give whole numbers, 0 for the best"
        )
    return np.array([int(value) for value in values], np.int32)


def _is_rank(value: Any) -> bool:
    if isinstance(value, str):  # as a CSV's are read
        return value.isdecimal() and int(value) < 2**31
    return isinstance(value, int | float) and 0 <= value < 2**31 and value == int(value)
