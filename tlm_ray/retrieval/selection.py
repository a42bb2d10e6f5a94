"""The selection: each retrieved passage once, with its text, its best rank and the query that gave it.

It lies in parts of equally many passages, sorted by rank, then passage id, over all of them; tasks of bounded memory
write them, whatever the selection's size:

    chosen passages of a range of ids -> (gather their texts) -> (arrange each part)
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import WORK, PassageStore
from tlm_ray.retrieval.engine.topk import Selection
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.shards import SHARD_PASSAGES, Shards
from tlm_ray.retrieval.union_job import chosen_file, cut, ranges_of

PARTS = "selection.json"
DROPPED = "dropped.arrow"
COLUMNS = ["passage", "text", "rank", "score", "query", "source"]
PART_ROWS = 1 << 16  # passages of a part: 40 MB of text at 600 characters each
PIECE_BYTES = 1 << 28  # of text taken at once
SOURCES = 20  # whose passages a record counts: those with most


@dataclass(frozen=True)
class SelectionStore:
    """The selection of a finished stage, read part by part."""

    folder: str
    rows: Sequence[int]
    """passages of each part"""

    @classmethod
    def open(cls, folder: str) -> "SelectionStore":
        """Open the folder of a neighbours stage."""
        return cls(folder, storage.read_record(storage.join(folder, PARTS))["rows"])

    def __len__(self) -> int:
        return sum(self.rows)

    @property
    def files(self) -> list[str]:
        """Where the parts lie: tables of passage, text, rank, score, query and source."""
        return [_part_file(self.folder, part) for part in range(len(self.rows))]

    def read(self) -> pa.Table:
        """Return all passages; memory-mapped where they are local, else in memory."""
        return pa.concat_tables(map(storage.read_table, self.files))


def write_chosen(
    folder: str, work: str, store: PassageStore, ranges: Shards, counts: Sequence[np.ndarray], run: Search
) -> dict[str, Any]:
    """Write the selection of what the `chosen_file` of each range holds; return facts.

    work: where these lie, within the folder's WORK. counts: of each range, int64, by rank.
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
    """Write passages, each once, with their texts as a selection; return facts.

    ValueError names an id that is no passage's.
    """
    outside = selection.passages[(selection.passages < 0) | (selection.passages >= len(store))]
    if len(outside):
        raise ValueError(f"passage {outside[0]}: the corpus has the passages 0 to {len(store) - 1:,}; give their ids")
    work, ranges = storage.join(folder, WORK), ranges_of(len(store), places=len(selection.ranks), workers=run.workers)
    parts = [part.sorted() for part in cut(selection, ranges)]
    for number, part in enumerate(parts):
        storage.write_table(chosen_file(work, number), part.to_table())
    return write_chosen(folder, work, store, ranges, [np.bincount(part.ranks) for part in parts], run)


def write_texts(folder: str, table: pa.Table) -> dict[str, Any]:
    """Write texts that somebody else chose (passage, text, rank, source), in their order; return facts."""
    nobody, unknown = np.full(len(table), -1, np.int64), np.zeros(len(table), np.float32)
    table = table.append_column("score", pa.array(unknown)).append_column("query", pa.array(nobody))
    starts = range(0, max(1, len(table)), PART_ROWS)
    made = [_write_part(folder, part, table.slice(start, PART_ROWS)) for part, start in enumerate(starts)]
    return _finish(folder, made)


def write_drawn(
    folder: str, store: PassageStore, drawn: np.ndarray, ranks: np.ndarray, scores: np.ndarray, run: Search
) -> dict[str, Any]:
    """Write passages that no single query chose as a selection; return facts.

    drawn: int64, passage ids. ranks: int32, and scores: float, one for each of them.
    """
    nobody = np.full(len(drawn), -1, np.int64)
    return write_selection(folder, store, Selection(drawn, ranks, scores.astype(np.float32), nobody), run)


def read_rank_counts(folder: str) -> np.ndarray:
    """Return how many passages of a method's selection have each rank, int64."""
    return np.array(storage.read_record(storage.join(folder, PARTS))["ranks"], np.int64)


def read_dropped(folder: str) -> np.ndarray:
    """Return the ids of the passages that a method left out as contaminated, int64."""
    return storage.read_table(storage.join(folder, DROPPED))["passage"].to_numpy()


def _first_rows(counts: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the selection's row of the first passage of each rank in each range, int64 (ranges, ranks), and its rows.

    The selection goes rank by rank, in each from range to range.
    """
    by_rank = np.zeros((max(map(len, counts)), len(counts)), np.int64)
    for number, count in enumerate(counts):
        by_rank[: len(count), number] = count
    ends = np.cumsum(by_rank.ravel()).reshape(by_rank.shape)
    return (ends - by_rank).T, int(by_rank.sum())


def _gather(item: dict[str, Any], store: PassageStore, work: str, part_rows: int, parts: int) -> None:
    """Read the texts of one range's chosen passages, and leave what belongs to each part of the selection."""
    chosen = Selection.from_table(storage.read_table(chosen_file(work, item["shard"])))
    ordered = np.sort(chosen.passages)
    table = take_rows(_texts(store, item, ordered), np.searchsorted(ordered, chosen.passages))
    for name, values in (("passage", "passages"), ("rank", "ranks"), ("score", "scores"), ("query", "queries")):
        table = table.append_column(name, pa.array(getattr(chosen, values)))
    place = np.arange(len(chosen.ranks)) - np.searchsorted(chosen.ranks, chosen.ranks)  # among those of its rank
    part = (item["first"][chosen.ranks] + place) // part_rows
    bounds = np.searchsorted(part, np.arange(parts + 1))
    tables = (table.slice(a, b - a) for a, b in pairwise(bounds.tolist()))
    storage.write_pieces(_texts_file(work, item["shard"]), tables)


def _texts(store: PassageStore, item: dict[str, Any], passages: np.ndarray) -> pa.Table:
    """Return text and source of some passages of a range, int64 in ascending order."""
    found = [store.read(0, 0, ("text", "source"))]
    for start in range(item["start"], item["stop"], SHARD_PASSAGES):
        stop = min(start + SHARD_PASSAGES, item["stop"])
        some = passages[slice(*np.searchsorted(passages, [start, stop]))]
        if len(some):
            found.append(take_rows(store.read(start, stop, ("text", "source")), some - start))
    return pa.concat_tables(found)


def _arrange(item: dict[str, int], folder: str, work: str, ranges: int) -> dict[str, Any]:
    """Write one part of the selection from what every range has of it."""
    table = pa.concat_tables(storage.read_piece(_texts_file(work, number), item["part"]) for number in range(ranges))
    order = np.lexsort((table["passage"].to_numpy(), table["rank"].to_numpy()))
    return _write_part(folder, item["part"], take_rows(table, order))


def _write_part(folder: str, part: int, table: pa.Table) -> dict[str, Any]:
    storage.write_table(_part_file(folder, part), table.select(COLUMNS))
    sizes = pc.binary_length(table["text"]).to_numpy()
    ranks, sources = table["rank"].to_numpy(), Counter(map(str, table["source"].to_pylist()))
    return {"ranks": np.bincount(ranks), "rank_bytes": np.bincount(ranks, sizes).astype(np.int64), "sources": sources}


def _finish(folder: str, made: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write the list of parts; return facts of all."""
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
    """Add up arrays of int64 of different lengths, as if the shorter ones went on with zeros."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[: len(count)] += count
    return total


def _part_file(folder: str, part: int) -> str:
    return storage.join(folder, f"selection-{part:05d}.arrow")


def _texts_file(work: str, number: int) -> str:
    return storage.join(work, f"texts-{number:05d}.pieces")


def take_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return some rows of a table, int64 in any order, whose strings together may be larger than 2 GiB.

    Arrow's own `take` joins all strings of a column in one array, of 2 GiB at most.
    """
    strings = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
    sizes = sum((pc.binary_length(table[name]).fill_null(0).to_numpy() for name in strings), np.zeros(len(table), int))
    piece = np.cumsum(sizes[rows]) // PIECE_BYTES
    starts = np.flatnonzero(np.diff(piece, prepend=-1)).tolist()
    pieces = [_take_piece(table, some) for some in np.split(rows, starts[1:])]
    return pa.concat_tables(pieces)


def _take_piece(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Take rows whose strings fit one array: chunk by chunk in ascending order, then in the order asked for."""
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
