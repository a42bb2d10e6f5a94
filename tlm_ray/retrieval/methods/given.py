"""Use an external selection: a file of ranked texts, such as the authors' published `small_external.csv`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import storage
from tlm_ray.corpus.general.documents import as_strings, read_columns
from tlm_ray.corpus.labelled.tasks import Task, load_task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.methods.method import Method, Search, Sources
from tlm_ray.storage.digests import identity_of_file

TASK = "{task}"  # placeholder for the task's name in a location
COLUMNS = ("text", "rank")


@dataclass(frozen=True, kw_only=True)
class Given(Method):
    """The texts of a file (Parquet, CSV or JSONL), with ranks from an external retrieval.

    The columns are `text` and `rank`, the passage's best rank over all queries, from 0, as in the released code's
    files. Texts that share 13 words with a dev or test text are excluded, as in every method.
    """

    name: ClassVar[str] = "given"
    lists_leaks: ClassVar[bool] = False
    location: str
    """location of the file; {task} in it stands for the task's name"""

    def of_task(self, task: str) -> "Given":
        """Return the method with the location of one task's file."""
        return replace(self, location=self.location.replace(TASK, task))

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name, depth and the identity of the file, independent of its location."""
        return {"method": self.name, "depth": depth, "file": identity_of_file(self.location)}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the task only, because no corpus is read."""
        return {"task": sources.task}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Write the texts with ranks below the depth, best ranks first."""
        from tlm_ray.retrieval.selection import write_texts

        task = load_task(inputs["task"])
        table, leaks = _read(self.location, run.depth, task)
        source = pa.array([storage.shown(self.location)] * len(table), pa.string())
        facts = write_texts(folder, table.append_column("source", source))
        return {"contaminated": leaks} | facts


def _read(location: str, depth: int, task: Task) -> tuple[pa.Table, int]:
    """Return passage (row number), text and rank of the selected rows, by rank, and the number of excluded rows."""
    from tlm_ray.retrieval.selection import take_rows

    contamination = Contamination(task.held_out)
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
    """Return a column as ranks, int32; ValueError names the first row without a valid one."""
    values = column.to_pylist()
    wrong = next((row for row, value in enumerate(values) if not _is_rank(value)), None)
    if wrong is not None:
        raise ValueError(
            f"file {location!r}, row {first + wrong + 1}: rank is {values[wrong]!r}; give whole numbers, 0 for the best"
        )
    return np.array([int(value) for value in values], np.int32)


def _is_rank(value: Any) -> bool:
    if isinstance(value, str):  # CSV values may be strings
        return value.isdecimal() and int(value) < 2**31
    return isinstance(value, int | float) and 0 <= value < 2**31 and value == int(value)
