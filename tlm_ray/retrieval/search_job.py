"""Retrieval on a cluster: every shard searched in parallel with all queries, the results merged exactly.

A shard's result is a file of its own, so a run that is interrupted goes on with the shards that are missing, and the
number of shards and workers cannot show in the result.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.engine.merging import (
    Rankings,
    merge_rankings,
    probe_ranks,
    probe_scores,
    thresholds,
    update_best,
)
from tlm_ray.retrieval.engine.topk import TopK, best_ranks
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.selection import DROPPED, write_selection
from tlm_ray.retrieval.shards import Shards

RESULT_BYTES = 12  # of a passage in the result: its id and its score


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
    store = PassageStore.open(passages)
    ranges = Shards.of(len(store), shards=run.shards, workers=run.workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    shared = (ray.put(queries), ray.put(Contamination(task.texts("dev") + task.texts("test"))))
    constructed = (searcher, passages, work, run.depth, *shared, *arguments)
    options: dict[str, Any] = {"workers": run.workers, "gpus": gpus, "title": "search", "size": "passages"}
    made = list(parallel.each(ranges.items(), ShardWorker, arguments=constructed, **options))
    made.sort(key=lambda row: row["shard"])
    probes = [row["probes"] for row in made]
    best, merged = _merge(work, probes, ranges, queries=len(queries), run=run)
    dropped = np.concatenate([storage.read_table(row["dropped"])["passage"].to_numpy() for row in made])
    storage.write_table(storage.join(folder, DROPPED), pa.table({"passage": dropped}))
    facts = write_selection(folder, store, best_ranks(best, rows), run)
    storage.delete(work)
    return {
        "queries": len(task.train_texts),
        "distinct_queries": len(queries),
        "contaminated": len(dropped),
        **merged,
        **facts,
    }


class ShardWorker:
    """Searches one shard after another with all queries; what it shares with other workers it gets once."""

    def __init__(
        self,
        searcher: Callable[..., Searcher],
        passages: str,
        work: str,
        depth: int,
        queries: list[str],
        contamination: Contamination,
        *arguments: Any,
    ):
        self.store, self.work, self.contamination = PassageStore.open(passages), work, contamination
        self.searcher = searcher(queries, *arguments)
        self.best = np.zeros((len(queries), depth), np.float32)  # scores of the shards that this worker saw
        self.seen: set[int] = set()  # a shard that Ray hands out again must not count twice: later ones would lose some

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        depth = self.best.shape[1]
        files = {name: _file(self.work, name, item["shard"]) for name in ("shard", "dropped")}
        if not storage.exists(files["shard"]):  # written last
            self._search(item, files)
        found = Rankings.from_table(storage.read_table(files["shard"]))
        if item["shard"] not in self.seen:
            update_best(self.best, found.start, found.scores)  # of later shards, what is below the last is of no use
            self.seen.add(item["shard"])
        probes = pa.compress(probe_scores(found, depth).tobytes(), codec="zstd", asbytes=True)
        return {"shard": item["shard"], "dropped": files["dropped"], "probes": probes}

    def _search(self, item: dict[str, int], files: dict[str, str]) -> None:
        depth, aligned = self.best.shape[1], self.searcher.aligned
        low, high = item["start"] - item["start"] % aligned, -(-item["stop"] // aligned) * aligned
        texts = as_strings(self.store.read(low, high)["text"])
        inside = slice(item["start"] - low, item["stop"] - low)
        leaks = self.contamination.find(texts)
        allowed = np.zeros(len(texts), np.bool_)
        allowed[inside] = ~leaks[inside]
        top = self.searcher.search(texts, k=depth, allowed=allowed, floor=self.best[:, -1])
        dropped = item["start"] + np.flatnonzero(leaks[inside])
        storage.write_table(files["dropped"], pa.table({"passage": dropped}))
        storage.write_table(files["shard"], Rankings.of(top, offset=low).above(self.best[:, -1]).to_table())


def _file(work: str, name: str, shard: int) -> str:
    return storage.join(work, f"{name}-{shard:05d}.arrow")


def _merge(work: str, probes: list[bytes], ranges: Shards, *, queries: int, run: Search) -> tuple[TopK, dict[str, int]]:
    """Fetch from each shard what may be among the best of all, and unite it; return that and how many bytes moved."""
    shape = (queries, len(probe_ranks(run.depth)))
    size = 2 * shape[0] * shape[1]
    every = [np.frombuffer(pa.decompress(one, size, "zstd"), np.uint16).reshape(shape) for one in probes]
    arguments = (work, ray.put(thresholds(every, run.depth)))
    sent = parallel.ray_tasks(ranges.items(), _send, arguments=arguments, workers=run.workers, title="merge")
    best = merge_rankings([Rankings.from_table(storage.table_from_bytes(one)) for one in sent], run.depth)
    moved = sum(map(len, probes)) + sum(map(len, sent))
    return best, {"result_bytes": int((best.ids >= 0).sum()) * RESULT_BYTES, "merge_bytes": moved}


def _send(item: dict[str, int], work: str, threshold: np.ndarray) -> bytes:
    """Return what a shard found at or above each query's threshold."""
    found = Rankings.from_table(storage.read_table(_file(work, "shard", item["shard"])))
    return storage.table_to_bytes(found.above(threshold).to_table(), compression="zstd")
