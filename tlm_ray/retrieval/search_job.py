"""Retrieval on a cluster: every shard searched in parallel with all queries, then united (`union_job`), exactly.

A shard's result is a file of its own, so a run that is interrupted goes on with the shards that are missing, and the
number of shards and workers cannot show in the result.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import WORK, PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.engine.merging import Rankings, update_best
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.selection import DROPPED, write_chosen
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.union_job import Spans, ranges_of, shard_file, unite


class Searcher(Protocol):
    """What a searching method is on a worker: made once of the queries, then given one shard after another."""

    aligned: int
    """shards are read from and to a multiple of it, 1 if a passage's score does not depend on its neighbours; passages
    outside the shard are not allowed"""

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best allowed passages for each query, with scores above 0.

        texts: Arrow strings, the passages of a shard; ids count from the first of them. allowed: bool (passages,).
        floor: float32 (queries,); a passage with a score below it may be left out.
        """
        ...


def search_corpus(
    folder: str,
    passages: str,
    task: Task,
    run: Search,
    *,
    queries: Sequence[str],
    rows: np.ndarray,
    searcher: Callable[..., Searcher],
    arguments: Sequence[Any] = (),
    gpus: float = 0,
) -> dict[str, Any]:
    """Retrieve the `run.depth` best passages of each query and unite them, each with its best rank; return facts.

    queries: distinct texts. rows: int64 (queries,), the training row that each stands for. searcher: called on each
    worker, which has `gpus`, as `searcher(queries, *arguments)`; `ray.put` references among the arguments arrive as
    their values. Passages that equal or share a 13-word run with a dev or test text are left out before anything is
    ranked. Writes the selection (passage, text, rank, score, query, source; sorted by rank, then passage) and the ids
    left out.
    """
    store, spans = PassageStore.open(passages), Spans.of(len(queries), depth=run.depth)
    shards = Shards.of(len(store), shards=run.shards, workers=run.workers)
    ranges = ranges_of(len(store), places=spans.queries * spans.depth, workers=run.workers)
    work = storage.join(folder, WORK, f"shards-{shards.count}-{len(spans.bounds)}")
    shared = (ray.put(queries), ray.put(Contamination(task.texts("dev") + task.texts("test"))))
    constructed = (searcher, passages, work, spans, *shared, *arguments)
    options: dict[str, Any] = {"workers": run.workers, "gpus": gpus, "title": "search", "size": "passages"}
    made = sorted(parallel.each(shards.items(), ShardWorker, arguments=constructed, **options), key=itemgetter("shard"))
    dropped = np.concatenate([np.frombuffer(row["dropped"], np.int64) for row in made])
    storage.write_table(storage.join(folder, DROPPED), pa.table({"passage": dropped}))
    counts = unite(work, shards, spans, ranges, rows=rows, workers=run.workers)
    facts = write_chosen(folder, work, store, ranges, counts, run)
    return {
        "queries": len(task.train_texts),
        "distinct_queries": len(queries),
        "contaminated": len(dropped),
        **facts,
    }


class ShardWorker:
    """Searches one shard after another with all queries; what it shares with other workers it gets once."""

    def __init__(
        self,
        searcher: Callable[..., Searcher],
        passages: str,
        work: str,
        spans: Spans,
        queries: list[str],
        contamination: Contamination,
        *arguments: Any,
    ):
        self.store, self.work, self.contamination = PassageStore.open(passages), work, contamination
        self.searcher, self.spans = searcher(queries, *arguments), spans
        self.best = np.zeros((spans.queries, spans.depth), np.float32)  # scores of the shards that this worker saw
        self.seen: set[int] = set()  # a shard that Ray hands out again must not count twice: later ones would lose some

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        shard = item["shard"]
        found = None if storage.exists(shard_file(self.work, shard)) else self._search(item)
        if shard not in self.seen:
            self._remember(shard, found)
        dropped = storage.read_table(_dropped_file(self.work, shard))["passage"].to_numpy()
        return {"shard": shard, "dropped": dropped.tobytes()}

    def _search(self, item: dict[str, int]) -> Rankings:
        aligned = self.searcher.aligned
        low, high = item["start"] - item["start"] % aligned, -(-item["stop"] // aligned) * aligned
        texts = as_strings(self.store.read(low, high)["text"])
        inside = slice(item["start"] - low, item["stop"] - low)
        leaks = self.contamination.find(texts)
        allowed = np.zeros(len(texts), np.bool_)
        allowed[inside] = ~leaks[inside]
        top = self.searcher.search(texts, k=self.spans.depth, allowed=allowed, floor=self.best[:, -1])
        found = Rankings.of(top, offset=low).above(self.best[:, -1])
        dropped = item["start"] + np.flatnonzero(leaks[inside])
        storage.write_table(_dropped_file(self.work, item["shard"]), pa.table({"passage": dropped}))
        storage.write_pieces(shard_file(self.work, item["shard"]), self.spans.pieces(found))  # last: it is completion
        return found

    def _remember(self, shard: int, found: Rankings | None) -> None:
        """Keep a shard's scores: of later shards, what is below the best so far is of no use."""
        for span, (first, last) in enumerate(self.spans.bounds):
            table = None if found else storage.read_piece(shard_file(self.work, shard), span)
            part = found.of_queries(first, last) if found else Rankings.from_table(table)
            update_best(self.best[first:last], part.start, part.scores)
        self.seen.add(shard)


def _dropped_file(work: str, shard: int) -> str:
    return storage.join(work, f"dropped-{shard:05d}.arrow")
