"""Write and read selections: each retrieved passage once, with its text, best rank and query.

Parts have equal numbers of passages and are globally sorted by rank, then passage id. Tasks of bounded memory write
a selection of any size:

    chosen passages of a range of ids -> (gather their texts) -> (arrange each part)
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.passages import WORK, PassageStore
from tlm_ray.retrieval.engine.topk import Selection
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.shards import SHARD_PASSAGES, Shards
from tlm_ray.retrieval.union_job import chosen_file, cut, ranges_of

if TYPE_CHECKING:
    import pandas as pd
    import ray.data

PARTS = "selection.json"
DROPPED = "dropped.arrow"
COLUMNS = ["passage", "text", "rank", "score", "query", "source"]
SHOWN_COLUMNS = ["query", "rank", "score", "text", "source", "passage"]
SHOWN, SHOWN_CHARACTERS = 10, 200  # passages that a notebook shows, and the length at which their texts are cut
PART_ROWS = 1 << 16  # passages per part: 40 MB of text at 600 characters each
PIECE_BYTES = 1 << 28  # bytes of text per piece of `take_rows`
SOURCES = 20  # sources to list in a record: those with most passages


@dataclass(frozen=True)
class SelectionStore:
    """The selection of a finished stage, readable part by part."""

    folder: str
    rows: Sequence[int]
    """number of passages per part"""

    @classmethod
    def open(cls, folder: str) -> "SelectionStore":
        """Open the folder of a neighbours stage."""
        return cls(folder, storage.read_record(storage.join(folder, PARTS))["rows"])

    def __len__(self) -> int:
        return sum(self.rows)

    @property
    def files(self) -> list[str]:
        """The locations of the parts: tables of passage, text, rank, score, query and source."""
        return [_part_file(self.folder, part) for part in range(len(self.rows))]

    def read(self) -> pa.Table:
        """Return all passages; memory-mapped if local, else in memory."""
        return pa.concat_tables(map(storage.read_table, self.files))

    def to_pandas(self, queries: Sequence[str] = ()) -> "pd.DataFrame":
        """Return a row per passage, best rank first: query, rank (from 0), score, text, source, passage.

        query: the row of the training text that found the passage at this rank, -1 if none did. queries: the training
        texts; they become the column query_text. ValueError for fewer texts than rows.
        """
        return _frame(self.read(), queries)

    def _repr_html_(self) -> str:
        """Return the first passages, their texts cut, escaped by pandas."""
        if not self.files:
            return "<p>0 passages</p>"
        frame = _frame(storage.read_table(self.files[0]).slice(0, SHOWN), ())
        frame["source"] = [storage.shown(str(source)) for source in frame["source"]]
        frame["text"] = [text[:SHOWN_CHARACTERS] + "…" * (len(text) > SHOWN_CHARACTERS) for text in frame["text"]]
        table = frame.to_html(index=False, escape=True, border=0, justify="left", float_format="%.2f")
        said = f"<p>{len(self):,} passages; the first {len(frame)}, by rank:</p>"
        return f'<div class="mathjax_ignore tex2jax_ignore">{said}{table}</div>'  # dollars are no formulas

    def dataset(self) -> "ray.data.Dataset":
        """Return all passages, in the same order, as a Ray Dataset."""
        return parallel.dataset_of(storage.read_table, [{"uri": uri} for uri in self.files], name="selection")


def has_selection(folder: str) -> bool:
    """Return whether a folder has a finished selection."""
    return storage.exists(storage.join(folder, PARTS))


def _frame(table: pa.Table, queries: Sequence[str]) -> "pd.DataFrame":
    frame = table.select(SHOWN_COLUMNS).to_pandas()
    if len(queries):
        if (last := frame["query"].max()) >= len(queries):
            raise ValueError(f"queries: {len(queries)} texts, but row {last} found a passage; give all training texts")
        texts = [queries[row] if row >= 0 else None for row in frame["query"]]
        frame.insert(1, "query_text", texts)
    return frame


def write_chosen(
    folder: str, work: str, store: PassageStore, ranges: Shards, counts: Sequence[np.ndarray], run: Search
) -> dict[str, Any]:
    """Write the selection of the passages in each range's `chosen_file`; return facts.

    work: folder of these files, within the selection's WORK. counts: passages per range and rank, int64.
    """
    first, rows = _first_rows(counts)
    parts = [{"part": part} for part in range(max(1, -(-rows // PART_ROWS)))]
    items = [item | {"first": places} for item, places in zip(ranges.items(), first, strict=True)]
    gathered = (store, work, PART_ROWS, len(parts))
    parallel.ray_tasks(items, _gather, arguments=gathered, workers=run.workers, title="gather texts")
    arranged = (folder, work, ranges.count)
    made = parallel.ray_tasks(parts, _arrange, arguments=arranged, workers=run.workers, title="arrange")
    return _finish(folder, made)


def write_selection(folder: str, store: PassageStore, selection: Selection, run: Search) -> dict[str, Any]:
    """Write distinct passages with their texts as a selection; return facts.

    ValueError names an unknown passage id.
    """
    outside = selection.passages[(selection.passages < 0) | (selection.passages >= len(store))]
    if len(outside):
        raise ValueError(f"passage {outside[0]}: unknown id; the corpus has passages 0 to {len(store) - 1:,}")
    work, ranges = storage.join(folder, WORK), ranges_of(len(store), places=len(selection.ranks), workers=run.workers)
    parts = [part.sorted() for part in cut(selection, ranges)]
    for number, part in enumerate(parts):
        storage.write_table(chosen_file(work, number), part.to_table())
    return write_chosen(folder, work, store, ranges, [np.bincount(part.ranks) for part in parts], run)


def write_texts(folder: str, table: pa.Table) -> dict[str, Any]:
    """Write externally retrieved texts (passage, text, rank, source), in order; return facts."""
    nobody, unknown = np.full(len(table), -1, np.int64), np.zeros(len(table), np.float32)
    table = table.append_column("score", pa.array(unknown)).append_column("query", pa.array(nobody))
    starts = range(0, max(1, len(table)), PART_ROWS)
    made = [_write_part(folder, part, table.slice(start, PART_ROWS)) for part, start in enumerate(starts)]
    return _finish(folder, made)


def write_drawn(
    folder: str, store: PassageStore, drawn: np.ndarray, ranks: np.ndarray, scores: np.ndarray, run: Search
) -> dict[str, Any]:
    """Write passages without a query as a selection; return facts.

    drawn: int64, passage ids. ranks: int32, and scores: float, one per passage.
    """
    nobody = np.full(len(drawn), -1, np.int64)
    return write_selection(folder, store, Selection(drawn, ranks, scores.astype(np.float32), nobody), run)


def read_rank_counts(folder: str) -> np.ndarray:
    """Return the number of passages per rank in a method's selection, int64."""
    return np.array(storage.read_record(storage.join(folder, PARTS))["ranks"], np.int64)


def read_dropped(folder: str) -> np.ndarray:
    """Return the ids of the passages that a method excluded as contaminated, int64."""
    return storage.read_table(storage.join(folder, DROPPED))["passage"].to_numpy()


def _first_rows(counts: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the first row of each rank of each range, int64 (ranges, ranks), and the number of rows.

    Rows of a selection are ordered by rank, then range.
    """
    by_rank = np.zeros((max(map(len, counts)), len(counts)), np.int64)
    for number, count in enumerate(counts):
        by_rank[: len(count), number] = count
    ends = np.cumsum(by_rank.ravel()).reshape(by_rank.shape)
    return (ends - by_rank).T, int(by_rank.sum())


def _gather(item: dict[str, Any], store: PassageStore, work: str, part_rows: int, parts: int) -> None:
    """Read the texts of one range's chosen passages, and write a piece for each part of the selection."""
    chosen = Selection.from_table(storage.read_table(chosen_file(work, item["shard"])))
    ordered = np.sort(chosen.passages)
    table = take_rows(_texts(store, item, ordered), np.searchsorted(ordered, chosen.passages))
    for name, values in (("passage", "passages"), ("rank", "ranks"), ("score", "scores"), ("query", "queries")):
        table = table.append_column(name, pa.array(getattr(chosen, values)))
    place = np.arange(len(chosen.ranks)) - np.searchsorted(
        chosen.ranks, chosen.ranks
    )  # position among passages of the same rank
    part = (item["first"][chosen.ranks] + place) // part_rows
    bounds = np.searchsorted(part, np.arange(parts + 1))
    tables = (table.slice(a, b - a) for a, b in pairwise(bounds.tolist()))
    storage.write_pieces(_texts_file(work, item["shard"]), tables)


def _texts(store: PassageStore, item: dict[str, Any], passages: np.ndarray) -> pa.Table:
    """Return text and source of some passages of a range; passages: int64 ascending."""
    found = [store.read(0, 0, ("text", "source"))]
    for start in range(item["start"], item["stop"], SHARD_PASSAGES):
        stop = min(start + SHARD_PASSAGES, item["stop"])
        some = passages[slice(*np.searchsorted(passages, [start, stop]))]
        if len(some):
            found.append(take_rows(store.read(start, stop, ("text", "source")), some - start))
    return pa.concat_tables(found)


def _arrange(item: dict[str, int], folder: str, work: str, ranges: int) -> dict[str, Any]:
    """Write one part of the selection from the pieces of all ranges."""
    table = pa.concat_tables(storage.read_piece(_texts_file(work, number), item["part"]) for number in range(ranges))
    order = np.lexsort((table["passage"].to_numpy(), table["rank"].to_numpy()))
    return _write_part(folder, item["part"], take_rows(table, order))


def _write_part(folder: str, part: int, table: pa.Table) -> dict[str, Any]:
    storage.write_table(_part_file(folder, part), table.select(COLUMNS))
    sizes = pc.binary_length(table["text"]).to_numpy()
    ranks, sources = table["rank"].to_numpy(), Counter(map(str, table["source"].to_pylist()))
    return {"ranks": np.bincount(ranks), "rank_bytes": np.bincount(ranks, sizes).astype(np.int64), "sources": sources}


def _finish(folder: str, made: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write the list of parts; return facts of the whole selection."""
    ranks, rank_bytes = (_sum([part[name] for part in made]) for name in ("ranks", "rank_bytes"))
    rows = [int(part["ranks"].sum()) for part in made]
    storage.write_record(storage.join(folder, PARTS), {"rows": rows, "ranks": ranks.tolist()})
    sources: Counter[str] = Counter()
    for part in made:
        sources.update(part["sources"])
    return {
        "selected": sum(rows),
        "text_bytes": int(rank_bytes.sum()),
        "rank_bytes": rank_bytes.tolist(),
        "sources": dict(sources.most_common(SOURCES)),
    }


def _sum(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Add int64 arrays of different lengths, padded with zeros."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[: len(count)] += count
    return total


def _part_file(folder: str, part: int) -> str:
    return storage.join(folder, f"selection-{part:05d}.arrow")


def _texts_file(work: str, number: int) -> str:
    return storage.join(work, f"texts-{number:05d}.pieces")


def take_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return some rows of a table, in any order, even if their strings exceed 2 GiB; rows: int64.

    Arrow's own `take` joins all strings of a column into one array of at most 2 GiB.
    """
    strings = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
    sizes = sum((pc.binary_length(table[name]).fill_null(0).to_numpy() for name in strings), np.zeros(len(table), int))
    piece = np.cumsum(sizes[rows]) // PIECE_BYTES
    starts = np.flatnonzero(np.diff(piece, prepend=-1)).tolist()
    pieces = [_take_piece(table, some) for some in np.split(rows, starts[1:])]
    return pa.concat_tables(pieces)


def _take_piece(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Take rows whose strings fit one array: chunk by chunk in ascending order, then reordered."""
    order = np.argsort(rows, kind="stable")
    taken = pa.Table.from_batches(_take_batches(table, rows[order]), table.schema).combine_chunks()
    return taken.take(np.argsort(order))


def _take_batches(table: pa.Table, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in table.to_batches():
        low, high = np.searchsorted(rows, [first, first + len(batch)])
        if low < high:
            yield batch.take(pa.array(rows[low:high] - first))
        first += len(batch)
