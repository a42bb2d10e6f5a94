"""Retrieval on a cluster: every shard searched in parallel with all queries, the results merged exactly.

A shard's result is a file of its own, so a run that is interrupted goes on with the shards that are missing, and the
number of shards and workers cannot show in the result.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.bm25 import Bm25
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.counting import read_statistics
from tlm_ray.retrieval.merging import Lists, floors, remember, rung_ranks, rungs, unite
from tlm_ray.retrieval.queries import distinct_bags, distinct_texts
from tlm_ray.retrieval.rake import key_phrases
from tlm_ray.retrieval.selection import DROPPED, write_selection
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.topk import TopK, best_ranks

RESULT_BYTES = 12  # of a passage in the result: its id and its score


class Searcher(Protocol):
    """What a searching method is on a worker: made once of the queries, then given one shard after another.

    aligned: shards are read from and to a multiple of it; passages outside the shard are not allowed.
    """

    aligned: int

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best allowed passages for each query; one below the query's floor may be left out."""
        ...


def find_neighbours(
    folder: str,
    passages: str,
    task: Task,
    *,
    method: str,
    depth: int,
    analyzer: Analyzer,
    statistics: str,
    encoder: str,
    shards: int,
    workers: int,
    gpus: float = 0,
) -> dict[str, Any]:
    """Retrieve the `depth` best passages of each training text and unite them, each with its best rank.

    method: "bm25" searches with whole texts and "rake" with their key phrases, both with the analyzer and the corpus'
    statistics; "dense" with the embeddings of `encoder`, on `gpus` a worker.
    Passages that equal or share a 13-word run with a dev or test text are left out before anything is ranked. Writes
    the selection (passage, text, rank, score, query, source; sorted by rank, then passage) and the ids left out.
    ValueError names the first training row without any word to search by.
    """
    store, texts = PassageStore.open(passages), task.train_texts
    make: Callable[..., Searcher]
    method_arguments: tuple[Any, ...]
    if method == "dense":
        (queries, rows), make, method_arguments = distinct_texts(texts), _dense, (encoder,)
    else:
        texts = [key_phrases(text) for text in texts] if method == "rake" else texts
        queries, rows = distinct_bags(texts, analyzer)
        make, method_arguments = Bm25, (analyzer, ray.put(read_statistics(statistics)))
    ranges = Shards.of(len(store), shards=shards, workers=workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    shared = (ray.put(queries), ray.put(Contamination(task.texts("dev") + task.texts("test"))))
    arguments = (make, passages, work, depth, *shared, *method_arguments)
    options: dict[str, Any] = {"workers": workers, "gpus": gpus, "title": "search", "size": "passages"}
    made = list(parallel.each(ranges.items(), ShardWorker, arguments=arguments, **options))
    made.sort(key=lambda row: row["shard"])
    told = [row["rungs"] for row in made]
    best, merged = _merge(work, told, ranges, queries=len(queries), depth=depth, workers=workers)
    dropped = np.concatenate([storage.read_table(row["dropped"])["passage"].to_numpy() for row in made])
    storage.write_table(storage.join(folder, DROPPED), pa.table({"passage": dropped}))
    united = best_ranks(best, rows)
    facts = write_selection(folder, store, united, work=work, ranges=ranges, workers=workers)
    storage.delete(work)
    return {
        "queries": len(texts),
        "distinct_queries": len(queries),
        "contaminated": len(dropped),
        **merged,
        **facts,
    }


def _dense(queries: list[str], encoder: str) -> Searcher:
    from tlm_ray.retrieval.dense import Dense  # torch and transformers, which no other method needs

    return Dense(queries, encoder)


class ShardWorker:
    """Searches one shard after another with all queries; what it shares with other workers it gets once."""

    def __init__(
        self,
        make: Callable[..., Searcher],
        passages: str,
        work: str,
        depth: int,
        queries: list[str],
        contamination: Contamination,
        *method_arguments: Any,
    ):
        self.store, self.work, self.contamination = PassageStore.open(passages), work, contamination
        self.searcher = make(queries, *method_arguments)
        self.best = np.zeros((len(queries), depth), np.float32)  # scores of the shards that this worker saw
        self.seen: set[int] = set()  # a shard that Ray hands out again must not count twice: later ones would lose some

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        depth = self.best.shape[1]
        files = {name: _file(self.work, name, item["shard"]) for name in ("shard", "dropped")}
        if not storage.exists(files["shard"]):  # written last
            low = item["start"] - item["start"] % self.searcher.aligned
            high = -(-item["stop"] // self.searcher.aligned) * self.searcher.aligned
            texts = self.store.read(low, high)["text"].combine_chunks()
            inside = slice(item["start"] - low, item["stop"] - low)
            leaks = self.contamination.find(texts)
            allowed = np.zeros(len(texts), np.bool_)
            allowed[inside] = ~leaks[inside]
            top = self.searcher.search(texts, k=depth, allowed=allowed, floor=self.best[:, -1])
            dropped = item["start"] + np.flatnonzero(leaks[inside])
            storage.write_table(files["dropped"], pa.table({"passage": dropped}))
            storage.write_table(files["shard"], Lists.of(top, offset=low).above(self.best[:, -1]).to_table())
        found = Lists.from_table(storage.read_table(files["shard"]))
        if item["shard"] not in self.seen:
            remember(self.best, found.start, found.scores)  # of later shards, what is below the last is of no use
            self.seen.add(item["shard"])
        told = pa.compress(rungs(found, depth).tobytes(), codec="zstd", asbytes=True)
        return {"shard": item["shard"], "dropped": files["dropped"], "rungs": told}


def _file(work: str, name: str, shard: int) -> str:
    return storage.join(work, f"{name}-{shard:05d}.arrow")


def _merge(
    work: str, told: list[bytes], ranges: Shards, *, queries: int, depth: int, workers: int
) -> tuple[TopK, dict[str, int]]:
    """Fetch from each shard what may be among the best of all, and unite it; return that and how many bytes moved."""
    shape = (queries, len(rung_ranks(depth)))
    size = 2 * shape[0] * shape[1]
    every = [np.frombuffer(pa.decompress(one, size, "zstd"), np.uint16).reshape(shape) for one in told]
    arguments = (work, ray.put(floors(every, depth)))
    sent = parallel.tasks(ranges.items(), _send, arguments=arguments, workers=workers, title="merge")
    best = unite([Lists.from_table(storage.table_from_bytes(one)) for one in sent], depth)
    moved = sum(map(len, told)) + sum(map(len, sent))
    return best, {"result_bytes": int((best.ids >= 0).sum()) * RESULT_BYTES, "merge_bytes": moved}


def _send(item: dict[str, int], work: str, floor: np.ndarray) -> bytes:
    """Return what a shard found at or above each query's floor."""
    found = Lists.from_table(storage.read_table(_file(work, "shard", item["shard"])))
    return storage.table_to_bytes(found.above(floor).to_table(), compression="zstd")
