"""The selection: each retrieved passage once, with its text, its best rank and the query that gave it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.retrieval.engine.topk import Selection
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.shards import Shards

SELECTION = "selection.arrow"
DROPPED = "dropped.arrow"
PIECE_BYTES = 1 << 28  # of text taken at once
SOURCES = 20  # whose passages a record counts: those with most


def write_selection(folder: str, store: PassageStore, selection: Selection, run: Search) -> dict[str, Any]:
    """Gather the selected passages' texts shard by shard and write them in the selection's order; return facts."""
    ranges = Shards.of(len(store), shards=run.shards, workers=run.workers)
    work = storage.join(folder, f"texts-{ranges.count}")
    arguments = (store, work, ray.put(np.sort(selection.passages)))
    made = parallel.ray_tasks(ranges.items(), _gather, arguments=arguments, workers=run.workers, title="gather texts")
    texts = pa.concat_tables([storage.read_table(file) for file in made])
    place = np.searchsorted(texts["passage"].to_numpy(), selection.passages)
    table = take_rows(texts, place).append_column("rank", pa.array(selection.ranks))
    table = table.append_column("score", pa.array(selection.scores))
    table = table.append_column("query", pa.array(selection.queries))
    facts = _write(folder, table)
    storage.delete(work)
    return facts


def write_texts(folder: str, table: pa.Table) -> dict[str, Any]:
    """Write texts that somebody else chose (passage, text, rank, source), in their order; return facts."""
    nobody, unknown = np.full(len(table), -1, np.int64), np.zeros(len(table), np.float32)
    return _write(folder, table.append_column("score", pa.array(unknown)).append_column("query", pa.array(nobody)))


def _write(folder: str, table: pa.Table) -> dict[str, Any]:
    table = table.select(["passage", "text", "rank", "score", "query", "source"])
    storage.write_table(storage.join(folder, SELECTION), table)
    sizes = pc.binary_length(table["text"]).to_numpy()
    return {
        "selected": len(table),
        "text_bytes": int(sizes.sum()),
        "rank_bytes": np.bincount(table["rank"].to_numpy(), sizes).astype(int).tolist(),
        "sources": dict(Counter(map(str, table["source"].to_pylist())).most_common(SOURCES)),
    }


def write_drawn(
    folder: str, store: PassageStore, drawn: np.ndarray, ranks: np.ndarray, scores: np.ndarray, run: Search
) -> dict[str, Any]:
    """Write passages that no single query chose as a selection; return facts.

    drawn: int64, passage ids. ranks: int32, and scores: float, one for each of them.
    """
    order = np.lexsort((drawn, ranks))
    nobody = np.full(len(drawn), -1, np.int64)
    selection = Selection(drawn[order], ranks[order], scores[order].astype(np.float32), nobody)
    return write_selection(folder, store, selection, run)


def read_ranks_and_dropped(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks of a method's selection, int32, and the ids of the passages that it left out, int64."""
    ranks = storage.read_table(storage.join(folder, SELECTION))["rank"].to_numpy()
    return ranks, storage.read_table(storage.join(folder, DROPPED))["passage"].to_numpy()


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


def _gather(item: dict[str, int], store: PassageStore, work: str, selected: np.ndarray) -> str:
    """Read the selected passages of one shard; return the file that holds them."""
    low, high = np.searchsorted(selected, [item["start"], item["stop"]])
    chosen = selected[low:high]
    texts = store.read(item["start"], item["stop"], ("text", "source"))
    uri = storage.join(work, f"texts-{item['shard']:05d}.arrow")
    taken = take_rows(texts, chosen - item["start"])
    storage.write_table(uri, taken.append_column("passage", pa.array(chosen)))
    return uri
