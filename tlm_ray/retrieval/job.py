"""Retrieval on a cluster: shards of the corpus counted, then searched in parallel, then merged exactly.

A shard is a range of passage ids. Its result is a file of its own, so a run that is interrupted goes on with the
shards that are missing, and the number of shards and workers cannot show in the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval import dsir
from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.bags import BagReader
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.index import index_passages
from tlm_ray.retrieval.kernel import search
from tlm_ray.retrieval.rake import key_phrases
from tlm_ray.retrieval.statistics import Statistics
from tlm_ray.retrieval.topk import Best, TopK, best_ranks, merge

STATISTICS = "statistics.arrow"
SELECTION = "selection.arrow"
DROPPED = "dropped.arrow"
SHARD_PASSAGES = 50_000  # a shard's postings take about 40 MB
FILES_MERGED = 16  # statistics in memory at once
QUERIES_MERGED = 1024  # queries whose shards' best are in memory at once


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The ranges of passage ids that a corpus is worked on in; an execution setting."""

    passages: int
    count: int

    @classmethod
    def of(cls, passages: int, *, shards: int, workers: int) -> "Shards":
        """Cut into `shards` ranges; 0 means one of about 50,000 passages, at least one a worker."""
        count = shards or max(workers, -(-passages // SHARD_PASSAGES))
        return cls(passages=passages, count=max(1, min(count, passages)))

    def items(self) -> list[dict[str, int]]:
        """List the ranges as items for `parallel.each`."""
        bounds = [self.passages * i // self.count for i in range(self.count + 1)]
        return [{"shard": i, "start": a, "stop": b} for i, (a, b) in enumerate(pairwise(bounds))]


def collect_statistics(folder: str, passages: str, *, analyzer: Analyzer, shards: int, workers: int) -> dict[str, Any]:
    """Count the whole corpus once: passages, term occurrences and the document frequency of every term."""
    ranges = Shards.of(len(PassageStore.open(passages)), shards=shards, workers=workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    arguments = (passages, work, analyzer)
    made = parallel.each(ranges.items(), _Counter, arguments=arguments, workers=workers, title="count terms")
    files, total = [row["file"] for row in made], Statistics.merge([])
    for i in range(0, len(files), FILES_MERGED):
        some = [Statistics.from_table(storage.read_table(file)) for file in files[i : i + FILES_MERGED]]
        total = Statistics.merge([total, *some])
    storage.write_table(storage.join(folder, STATISTICS), total.to_table())
    storage.delete(work)
    return {
        "passages": total.passages,
        "terms": total.terms,
        "distinct_terms": len(total.frequencies),
    }


class _Counter:
    """Counts one shard."""

    def __init__(self, passages: str, work: str, analyzer: Analyzer):
        self.store, self.work, self.analyzer = PassageStore.open(passages), work, analyzer

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        uri = storage.join(self.work, f"shard-{item['shard']:05d}.arrow")
        if not storage.exists(uri):
            texts = self.store.read(item["start"], item["stop"])["text"]
            storage.write_table(uri, Statistics.collect(texts, self.analyzer).to_table())
        return {"file": uri}


def find_neighbours(
    folder: str,
    passages: str,
    statistics: str,
    task: Task,
    *,
    method: str,
    depth: int,
    analyzer: Analyzer,
    shards: int,
    workers: int,
) -> dict[str, Any]:
    """Retrieve the `depth` best passages of each training text and unite them, each with its best rank.

    method: "bm25" searches with whole texts, "rake" with their key phrases. Passages that equal or share a 13-word run
    with a dev or test text are left out before anything is ranked. Writes the selection (passage, text, rank, score,
    query, source; sorted by rank, then passage) and the ids left out. ValueError names the first training row without
    any word to search by.
    """
    store = PassageStore.open(passages)
    texts = [key_phrases(text) for text in task.train_texts] if method == "rake" else task.train_texts
    queries, rows = distinct_queries(texts, analyzer)
    total = Statistics.from_table(storage.read_table(storage.join(statistics, STATISTICS)))
    ranges = Shards.of(len(store), shards=shards, workers=workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    arguments = (
        passages,
        work,
        analyzer,
        depth,
        ray.put(total),
        ray.put(queries),
        ray.put(Contamination(task.texts("dev") + task.texts("test"))),
    )
    made = list(parallel.each(ranges.items(), _Searcher, arguments=arguments, workers=workers, title="search"))
    made.sort(key=lambda row: row["shard"])
    best = best_ranks(_merge_files([row["file"] for row in made], len(queries), depth), rows)
    dropped = np.concatenate([storage.read_table(row["dropped"])["passage"].to_numpy() for row in made])
    storage.write_table(storage.join(folder, DROPPED), pa.table({"passage": dropped}))
    facts = write_selection(folder, store, best, work=work, ranges=ranges, workers=workers)
    storage.delete(work)
    return {
        "queries": len(task.train_texts),
        "distinct_queries": len(queries),
        "contaminated": len(dropped),
        **facts,
    }


def distinct_queries(texts: Sequence[str], analyzer: Analyzer) -> tuple[list[str], np.ndarray]:
    """Return one text for each distinct bag of terms, and the row of its first occurrence."""
    bags = BagReader(analyzer).read(texts)
    ends = np.cumsum(bags.sizes)
    first: dict[bytes, int] = {}
    for row, (start, end) in enumerate(zip(ends - bags.sizes, ends, strict=True)):
        if start == end:
            raise ValueError(f"training row {row}: {texts[row]!r} has no word to search by; mend it or take it out")
        order = start + np.argsort(bags.terms[start:end])
        first.setdefault(bags.terms[order].tobytes() + bags.counts[order].tobytes(), row)
    rows = np.array(list(first.values()), np.int64)
    return [texts[row] for row in rows], rows


class _Searcher:
    """Searches one shard after another with all queries; what it shares with other workers it gets once."""

    def __init__(
        self,
        passages: str,
        work: str,
        analyzer: Analyzer,
        depth: int,
        statistics: Statistics,
        queries: list[str],
        contamination: Contamination,
    ):
        self.store, self.work, self.analyzer = PassageStore.open(passages), work, analyzer
        self.statistics, self.queries, self.contamination = statistics, queries, contamination
        reader = BagReader(analyzer)
        reader.read(queries)
        self.terms = reader.terms()
        self.best = np.zeros((len(queries), depth), np.float32)  # scores of the shards that this worker searched

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        files = {name: storage.join(self.work, f"{name}-{item['shard']:05d}.arrow") for name in ("shard", "dropped")}
        if not storage.exists(files["shard"]):  # written last
            texts = self.store.read(item["start"], item["stop"])["text"]
            leaks = self.contamination.find(texts)
            index = index_passages(texts, analyzer=self.analyzer, statistics=self.statistics, only=self.terms)
            top = search(index, self.queries, k=self.best.shape[1], allowed=~leaks, floor=self.best.min(axis=1))
            storage.write_table(files["dropped"], pa.table({"passage": item["start"] + np.flatnonzero(leaks)}))
            storage.write_table(files["shard"], _to_lists(top, offset=item["start"]))
            self._remember(top.scores)  # last: were a shard counted twice, later ones would lose passages
        return {"shard": item["shard"], "file": files["shard"], "dropped": files["dropped"]}

    def _remember(self, scores: np.ndarray) -> None:
        """Keep each query's best scores so far: passages of later shards below the last of them are of no use."""
        depth = self.best.shape[1]
        for start in range(0, len(scores), QUERIES_MERGED):
            rows = slice(start, start + QUERIES_MERGED)
            both = np.concatenate([self.best[rows], scores[rows]], axis=1)
            self.best[rows] = np.partition(both, depth, axis=1)[:, depth:]


def _to_lists(top: TopK, *, offset: int) -> pa.Table:
    """Return a table of a list of ids and a list of scores a query, without the places that no passage took."""
    found = top.ids >= 0
    ends = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
    columns = {"id": top.ids[found] + offset, "score": top.scores[found]}
    return pa.table({name: pa.LargeListArray.from_arrays(ends, values) for name, values in columns.items()})


def _from_lists(table: pa.Table) -> TopK:
    """Return what `_to_lists` wrote, or a slice of it, as wide as its longest list."""
    lengths = pc.list_value_length(table["id"]).to_numpy()
    places = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
    ids, scores = np.full(places.shape, -1, np.int64), np.zeros(places.shape, np.float32)
    ids[places], scores[places] = (pc.list_flatten(table[name]).to_numpy() for name in ("id", "score"))
    return TopK(ids, scores)


def _merge_files(files: Sequence[str], queries: int, depth: int) -> TopK:
    """Merge the shards' files a run of queries at a time, so that memory holds one run of every shard."""
    tables = [storage.read_table(file) for file in files]
    runs = []
    for start in range(0, queries, QUERIES_MERGED):
        parts = [_from_lists(table.slice(start, QUERIES_MERGED)) for table in tables]
        runs.append(merge(parts, offsets=[0] * len(parts), k=depth))
    return TopK(np.concatenate([run.ids for run in runs]), np.concatenate([run.scores for run in runs]))


def draw_random(folder: str, passages: str, bm25: str, *, seed: int, shards: int, workers: int) -> dict[str, Any]:
    """Draw as many clean passages as BM25 chose, at every k: the ablation "TLM, random text" (paper table 3).

    The drawn passages carry BM25's ranks, handed out at random, so a cut at any k leaves equally many.
    """
    store = PassageStore.open(passages)
    ranks, dropped = _ranks_and_dropped(bm25)
    clean = np.setdiff1d(np.arange(len(store)), dropped)
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = generator.permutation(clean)[: len(ranks)]
    return _write_drawn(folder, store, drawn, ranks, np.zeros(len(ranks)), shards=shards, workers=workers)


def resample(
    folder: str, passages: str, bm25: str, task: Task, *, seed: int, shards: int, workers: int
) -> dict[str, Any]:
    """Draw as many clean passages as BM25 chose by importance (`tlm_ray.retrieval.dsir`).

    The drawn passages carry BM25's ranks in the order of their noisy weights, which are their scores.
    """
    store = PassageStore.open(passages)
    ranks, dropped = _ranks_and_dropped(bm25)
    ranges = Shards.of(len(store), shards=shards, workers=workers)
    counted = parallel.each(ranges.items(), _BucketCounter, arguments=(passages,), workers=workers, title="count words")
    corpus = sum((np.frombuffer(row["counts"], np.int64) for row in counted), np.zeros(dsir.BUCKETS, np.int64))
    ratio = dsir.log_ratio(dsir.count_buckets(task.train_texts), corpus)
    arguments = (passages, ray.put(dropped), ray.put(ratio), seed, len(ranks))
    made = list(parallel.each(ranges.items(), _Weigher, arguments=arguments, workers=workers, title="weigh"))
    ids, weights = (np.concatenate([np.frombuffer(row[name], kind) for row in made]) for name, kind in DRAWN)
    best = np.lexsort((ids, -weights))[: len(ranks)]
    return _write_drawn(folder, store, ids[best], np.sort(ranks), weights[best], shards=shards, workers=workers)


DRAWN = (("ids", np.int64), ("weights", np.float64))


class _BucketCounter:
    """Counts the hashed words of one shard."""

    def __init__(self, passages: str):
        self.store = PassageStore.open(passages)

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        return {"counts": dsir.count_buckets(self.store.read(item["start"], item["stop"])["text"]).tobytes()}


class _Weigher:
    """Draws from one shard as many passages as the whole draw needs at most."""

    def __init__(self, passages: str, dropped: np.ndarray, ratio: np.ndarray, seed: int, most: int):
        self.store, self.dropped, self.ratio, self.seed, self.most = (
            PassageStore.open(passages),
            dropped,
            ratio,
            seed,
            most,
        )

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        ids = np.arange(item["start"], item["stop"])
        weights = dsir.log_weights(self.store.read(item["start"], item["stop"])["text"], self.ratio)
        weights += dsir.gumbel(ids, seed=self.seed)
        clean = ~np.isin(ids, self.dropped)
        ids, weights = ids[clean], weights[clean]
        best = np.lexsort((ids, -weights))[: self.most]
        return {"ids": ids[best].tobytes(), "weights": weights[best].tobytes()}


def _ranks_and_dropped(bm25: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks of BM25's selection and the passages that it left out."""
    ranks = storage.read_table(storage.join(bm25, SELECTION))["rank"].to_numpy()
    return ranks, storage.read_table(storage.join(bm25, DROPPED))["passage"].to_numpy()


def _write_drawn(
    folder: str,
    store: PassageStore,
    drawn: np.ndarray,
    ranks: np.ndarray,
    scores: np.ndarray,
    *,
    shards: int,
    workers: int,
) -> dict[str, Any]:
    """Write passages that no single query chose as a selection."""
    order = np.lexsort((drawn, ranks))
    nobody = np.full(len(drawn), -1, np.int64)
    best = Best(drawn[order], ranks[order], scores[order].astype(np.float32), nobody)
    ranges = Shards.of(len(store), shards=shards, workers=workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    facts = write_selection(folder, store, best, work=work, ranges=ranges, workers=workers)
    storage.delete(work)
    return facts


def write_selection(
    folder: str, store: PassageStore, best: Best, *, work: str, ranges: Shards, workers: int
) -> dict[str, Any]:
    """Gather the selected passages' texts shard by shard and write them in the order of `best`."""
    arguments = (store.folder, work, ray.put(np.sort(best.passages)))
    made = list(parallel.each(ranges.items(), _Gatherer, arguments=arguments, workers=workers, title="gather texts"))
    made.sort(key=lambda row: row["shard"])
    texts = pa.concat_tables([storage.read_table(row["file"]) for row in made])
    place = np.searchsorted(texts["passage"].to_numpy(), best.passages)
    table = texts.take(place).append_column("rank", pa.array(best.ranks))
    table = table.append_column("score", pa.array(best.scores)).append_column("query", pa.array(best.queries))
    table = table.select(["passage", "text", "rank", "score", "query", "source"])
    storage.write_table(storage.join(folder, SELECTION), table)
    sizes = pc.binary_length(table["text"]).to_numpy()
    return {
        "selected": len(table),
        "text_bytes": int(sizes.sum()),
        "rank_bytes": np.bincount(best.ranks, sizes).astype(int).tolist(),
    }


class _Gatherer:
    """Reads the selected passages of one shard."""

    def __init__(self, passages: str, work: str, selected: np.ndarray):
        self.store, self.work, self.selected = PassageStore.open(passages), work, selected

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        low, high = np.searchsorted(self.selected, [item["start"], item["stop"]])
        chosen = self.selected[low:high]
        table = self.store.read(item["start"], item["stop"], ("text", "source")).take(chosen - item["start"])
        uri = storage.join(self.work, f"texts-{item['shard']:05d}.arrow")
        storage.write_table(uri, table.append_column("passage", pa.array(chosen)))
        return {"shard": item["shard"], "file": uri}
