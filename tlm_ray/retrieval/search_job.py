"""Search all shards in parallel with all queries, then unite the results exactly (`union_job`).

Each shard's result is a file, so an interrupted run resumes with the missing shards. The number of shards and workers
never changes the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.growth import Growth, largest_within
from tlm_ray.corpus.general.passages import WORK, PassageStore
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.engine.merging import Rankings, update_best
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.growing import Part, bounds_of_rest, can_grow, write_candidates
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.selection import DROPPED, read_dropped, write_chosen
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.union_job import Kept, Spans, ranges_of, shard_file, unite

# Rankings are kept at 1.5 times the selected depth, for later growth. With 1,366 queries at depth 50, growth by a tenth
# then required no second search. At 1.25 times, 2 queries required one, which reads all texts again.
MORE = 2


class Searcher(Protocol):
    """A worker's searcher, created once for all queries and called for one shard after another."""

    aligned: int
    """multiple that the bounds of a read are rounded to, if scores depend on neighbouring passages; 1 if not. Passages
    read outside the shard are not allowed"""

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best allowed passages per query, with scores above 0.

        texts: Arrow strings, a shard's passages; ids count from the first one. allowed: bool (passages,). floor:
        float32 (queries,); passages with lower scores may be omitted.
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
    rise: Callable[[Mapping[str, str]], np.ndarray] | None = None,
) -> dict[str, Any]:
    """Retrieve the `run.depth` best passages per query and unite them, each with its best rank; return facts.

    queries: distinct texts. rows: int64 (queries,), the training row of each query. searcher: called as
    `searcher(queries, *arguments)` on each worker, which has `gpus`. `ray.put` references among the arguments arrive as
    values. Passages that equal a dev or test text, or share a 13-word run with one, are excluded before ranking. Writes
    the selection (passage, text, rank, score, query, source; sorted by rank, then passage) and the excluded ids.

    rise: optional; takes the folders of an earlier selection and returns the maximum factor by which a passage's score
    increased since then, float64 (queries,). It allows reusing that selection if the corpus has grown (`growing`).
    """
    store, depth = PassageStore.open(passages), run.depth + (run.depth // MORE + 8 if rise else 0)
    spans = Spans.of(len(queries), depth=depth)
    shards = Shards.of(len(store), shards=run.shards, workers=run.workers)
    ranges = ranges_of(len(store), places=len(queries) * run.depth, workers=run.workers)
    work = storage.join(folder, WORK, f"shards-{shards.count}-{len(spans.bounds)}-{depth}")
    leaks = Contamination(task.held_out)
    how = {"workers": run.workers, "gpus": gpus}
    job = _Job(passages, work, list(queries), searcher, arguments, spans, shards, how)
    earlier = [each for each in run.earlier if rise and can_grow(each, spans)]
    before = largest_within(passages, earlier) if earlier else None
    if rise is None or before is None:
        files, dropped = job.search(ShardWorker, leaks, to=work)
        rest, facts = np.zeros(len(queries), np.float32), dict[str, int]()
    else:
        files, dropped, rest, facts = _search_grown(job, *before, leaks, rise=rise(before[0]), depth=run.depth)
    storage.write_table(storage.join(folder, DROPPED), pa.table({"passage": dropped}))
    kept = Kept(folder=folder, rest=rest) if rise else None
    counts = unite(work, files, spans, ranges, rows=rows, depth=run.depth, workers=run.workers, kept=kept)
    return {
        "queries": len(task.train_texts),
        "distinct_queries": len(queries),
        "contaminated": len(dropped),
        **facts,
        **write_chosen(folder, work, store, ranges, counts, run),
    }


def _search_grown(
    job: "_Job", earlier: Mapping[str, str], growth: Growth, leaks: Contamination, *, rise: np.ndarray, depth: int
) -> tuple[list[str], np.ndarray, np.ndarray, dict[str, int]]:
    """Search new passages, and old ones for the queries that may select them; see `growing`.

    Returns the shards' files, the excluded ids, bounds of the scores of passages not searched, and facts.
    """
    candidates = write_candidates(job.work, earlier, job.spans, growth)
    new = Part(growth.new, np.zeros(0, np.int64), candidates)
    files, found = job.search_part(new, np.arange(len(job.queries)), leaks)
    rest, open_ = bounds_of_rest(files, job.spans, earlier, depth=depth, rise=rise, workers=job.options["workers"])
    left_out = np.sort(growth.moved(read_dropped(earlier["folder"])))
    if len(open_):
        old = Part(growth.old, left_out, candidates, without=True)
        files += job.search_part(old, open_, Contamination([]))[0]
        rest[open_] = 0
    facts = {"grown_from": int(growth.starts[-1]), "searched_again": len(open_)}
    return files, np.sort(np.concatenate([found, left_out])), rest, facts


@dataclass(frozen=True)
class _Job:
    """A search of all shards, with the arguments that its workers share."""

    passages: str
    work: str
    queries: list[str]
    searcher: Callable[..., Searcher]
    arguments: Sequence[Any]
    spans: Spans
    shards: Shards
    options: dict[str, Any]

    def search(
        self, worker: type, leaks: Contamination, *, to: str, before: Sequence[Any] = ()
    ) -> tuple[list[str], np.ndarray]:
        """Search each shard; return the result files, and the excluded ids, int64 ascending."""
        shared = (ray.put(self.queries), ray.put(leaks))
        made_of = (*before, self.searcher, self.passages, to, self.spans, *shared, *self.arguments)
        items = self.shards.items()
        made = parallel.each(items, worker, arguments=made_of, title="search", size="passages", **self.options)
        dropped = [row["dropped"] for row in sorted(made, key=itemgetter("shard"))]
        return [shard_file(to, shard) for shard in range(self.shards.count)], np.concatenate(dropped)

    def search_part(self, part: Part, numbers: np.ndarray, leaks: Contamination) -> tuple[list[str], np.ndarray]:
        """Search a part of each shard with some of the queries; return as `search`.

        The folder's name identifies the part, because an interrupted run may have used another earlier result.
        """
        to = storage.join(self.work, part.name(numbers))
        return self.search(PartWorker, leaks, to=to, before=(part, numbers))


class ShardWorker:
    """Searches one shard after another with all queries; it receives shared arguments once."""

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
        self.best = np.zeros((spans.queries, spans.depth), np.float32)  # best scores over this worker's shards
        self.seen: set[int] = set()  # shards counted in `best`: counting a retry twice would raise later floors

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        shard = item["shard"]
        found = None if storage.exists(shard_file(self.work, shard)) else self._search(item)
        if shard not in self.seen:
            self._remember(shard, found)
        dropped = storage.read_table(_dropped_file(self.work, shard))["passage"].to_numpy()
        return {"shard": shard, "dropped": dropped}

    def _search(self, item: dict[str, int]) -> Rankings:
        ids = self._ids(item["start"], item["stop"])
        texts = self._texts(ids)
        inside = (ids >= item["start"]) & (ids < item["stop"])
        leaks = self.contamination.find(texts) & inside
        found = self._best(texts, inside & ~leaks)
        found = Rankings(found.start, ids[found.ids], found.scores)
        storage.write_table(_dropped_file(self.work, item["shard"]), pa.table({"passage": ids[leaks]}))
        storage.write_pieces(shard_file(self.work, item["shard"]), self.spans.pieces(found))  # last: marks completion
        return found

    def _ids(self, start: int, stop: int) -> np.ndarray:
        """Return the ids of the passages to read for a shard, int64 ascending."""
        aligned = self.searcher.aligned
        return np.arange(start - start % aligned, min(-(-stop // aligned) * aligned, len(self.store)))

    def _texts(self, ids: np.ndarray) -> pa.Array:
        """Return the texts of passages, as Arrow strings."""
        if not len(ids):
            return pa.array([], pa.string())
        start, stop = int(ids[0]), int(ids[-1]) + 1
        texts = as_strings(self.store.read(start, stop)["text"])
        return texts if len(ids) == stop - start else texts.take(pa.array(ids - start))

    def _best(self, texts: pa.Array, allowed: np.ndarray) -> Rankings:
        """Return the best passages per query, by their indices in texts."""
        floor = self.best[:, -1]
        top = self.searcher.search(texts, k=self.spans.depth, allowed=allowed, floor=floor)
        return Rankings.of(top).above(floor)

    def _remember(self, shard: int, found: Rankings | None) -> None:
        """Update the best scores with a shard's; they are lower bounds for later shards."""
        for span, (first, last) in enumerate(self.spans.bounds):
            table = None if found else storage.read_piece(shard_file(self.work, shard), span)
            part = found.of_queries(first, last) if found else Rankings.from_table(table)
            update_best(self.best[first:last], part.start, part.scores)
        self.seen.add(shard)


class PartWorker(ShardWorker):
    """Searches a part of each shard, with some of the queries."""

    def __init__(self, part: Part, numbers: np.ndarray, searcher: Callable[..., Searcher], *rest: Any):
        passages, work, spans, queries, *others = rest
        super().__init__(searcher, passages, work, spans, [queries[number] for number in numbers], *others)
        self.part, self.numbers = part.opened(), numbers

    def _ids(self, start: int, stop: int) -> np.ndarray:
        return self.part.within(start, stop)

    def _best(self, texts: pa.Array, allowed: np.ndarray) -> Rankings:
        """Return the best passages of the selected queries, none for the others."""
        floor = self.best[self.numbers, -1]
        sizes, none = np.zeros(self.spans.queries + 1, np.int64), np.zeros(0, np.int64)
        if not len(texts):
            return Rankings(sizes, none, none.astype(np.float32))
        top = self.searcher.search(texts, k=self.spans.depth, allowed=allowed, floor=floor)
        found = Rankings.of(top).above(floor)
        sizes[self.numbers + 1] = np.diff(found.start)
        return Rankings(np.cumsum(sizes), found.ids, found.scores)


def _dropped_file(work: str, shard: int) -> str:
    return storage.join(work, f"dropped-{shard:05d}.arrow")
