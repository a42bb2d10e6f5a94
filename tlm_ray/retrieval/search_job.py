"""Retrieval on a cluster: every shard searched in parallel with all queries, then united (`union_job`), exactly.

A shard's result is a file of its own, so a run that is interrupted goes on with the shards that are missing, and the
number of shards and workers cannot show in the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.growth import Growth, largest_within
from tlm_ray.corpus.passages import WORK, PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.engine.merging import Rankings, update_best
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.growing import Part, bounds_of_rest, can_grow, write_candidates
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.selection import DROPPED, read_dropped, write_chosen
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.union_job import Kept, Spans, ranges_of, shard_file, unite

# Half as many passages again are ranked as are chosen: of 1,366 queries at depth 50, growth by a tenth then left none
# whose choice the rest might have entered; with a quarter more it was 2, for which all texts are read again
MORE = 2


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
    rise: Callable[[Mapping[str, str]], np.ndarray] | None = None,
) -> dict[str, Any]:
    """Retrieve the `run.depth` best passages of each query and unite them, each with its best rank; return facts.

    queries: distinct texts. rows: int64 (queries,), the training row that each stands for. searcher: called on each
    worker, which has `gpus`, as `searcher(queries, *arguments)`; `ray.put` references among the arguments arrive as
    their values. Passages that equal or share a 13-word run with a dev or test text are left out before anything is
    ranked. Writes the selection (passage, text, rank, score, query, source; sorted by rank, then passage) and the ids
    left out.

    rise: given the folders of an earlier selection, returns for each query by what factor a passage's score may be
    larger than it was then, float64 (queries,). With it a corpus that has grown is searched where that can show.
    """
    store, depth = PassageStore.open(passages), run.depth + (run.depth // MORE + 8 if rise else 0)
    spans = Spans.of(len(queries), depth=depth)
    shards = Shards.of(len(store), shards=run.shards, workers=run.workers)
    ranges = ranges_of(len(store), places=len(queries) * run.depth, workers=run.workers)
    work = storage.join(folder, WORK, f"shards-{shards.count}-{len(spans.bounds)}-{depth}")
    leaks = Contamination(task.texts("dev") + task.texts("test"))
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
    """Search what is new, and of the rest what may have come within reach; see `growing`.

    Returns the shards' files, the ids left out, the bounds of what was not searched, and facts.
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
    """A search of all shards: what its workers share."""

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
        """Search each shard; return their files, and the ids left out, int64 in ascending order."""
        shared = (ray.put(self.queries), ray.put(leaks))
        made_of = (*before, self.searcher, self.passages, to, self.spans, *shared, *self.arguments)
        items = self.shards.items()
        made = parallel.each(items, worker, arguments=made_of, title="search", size="passages", **self.options)
        dropped = [row["dropped"] for row in sorted(made, key=itemgetter("shard"))]
        return [shard_file(to, shard) for shard in range(self.shards.count)], np.frombuffer(b"".join(dropped), np.int64)

    def search_part(self, part: Part, numbers: np.ndarray, leaks: Contamination) -> tuple[list[str], np.ndarray]:
        """Search some passages of each shard with some of the queries; return as `search`.

        The folder's name tells which: a run that was stopped may have begun from another earlier result.
        """
        to = storage.join(self.work, part.name(numbers))
        return self.search(PartWorker, leaks, to=to, before=(part, numbers))


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
        ids = self._ids(item["start"], item["stop"])
        texts = self._texts(ids)
        inside = (ids >= item["start"]) & (ids < item["stop"])
        leaks = self.contamination.find(texts) & inside
        found = self._best(texts, inside & ~leaks)
        found = Rankings(found.start, ids[found.ids], found.scores)
        storage.write_table(_dropped_file(self.work, item["shard"]), pa.table({"passage": ids[leaks]}))
        storage.write_pieces(shard_file(self.work, item["shard"]), self.spans.pieces(found))  # last: it is completion
        return found

    def _ids(self, start: int, stop: int) -> np.ndarray:
        """Return the ids of the passages to read for a shard, int64 in ascending order."""
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
        """Return the best of some passages for each query, by their places among them."""
        floor = self.best[:, -1]
        top = self.searcher.search(texts, k=self.spans.depth, allowed=allowed, floor=floor)
        return Rankings.of(top).above(floor)

    def _remember(self, shard: int, found: Rankings | None) -> None:
        """Keep a shard's scores: of later shards, what is below the best so far is of no use."""
        for span, (first, last) in enumerate(self.spans.bounds):
            table = None if found else storage.read_piece(shard_file(self.work, shard), span)
            part = found.of_queries(first, last) if found else Rankings.from_table(table)
            update_best(self.best[first:last], part.start, part.scores)
        self.seen.add(shard)


class PartWorker(ShardWorker):
    """Searches some passages of each shard, with some of the queries."""

    def __init__(self, part: Part, numbers: np.ndarray, searcher: Callable[..., Searcher], *rest: Any):
        passages, work, spans, queries, *others = rest
        super().__init__(searcher, passages, work, spans, [queries[number] for number in numbers], *others)
        self.part, self.numbers = part.opened(), numbers

    def _ids(self, start: int, stop: int) -> np.ndarray:
        return self.part.within(start, stop)

    def _best(self, texts: pa.Array, allowed: np.ndarray) -> Rankings:
        """Return the best of some passages for each of the queries that are asked, none for the others."""
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
