"""Methods that draw as many passages as BM25 chose, at every k: at random, or by importance for the task."""

from typing import Any

import numpy as np
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.corpus.tasks import Task
from tlm_ray.retrieval import dsir
from tlm_ray.retrieval.selection import DROPPED, SELECTION, write_selection
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.topk import Best


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
    options: dict[str, Any] = {"workers": workers, "size": "passages"}
    counted = parallel.each(ranges.items(), _BucketCounter, arguments=(passages,), title="count words", **options)
    corpus = sum((np.frombuffer(row["counts"], np.int64) for row in counted), np.zeros(dsir.BUCKETS, np.int64))
    ratio = dsir.log_ratio(dsir.count_buckets(task.train_texts), corpus)
    arguments = (passages, ray.put(dropped), ray.put(ratio), seed, len(ranks))
    made = list(parallel.each(ranges.items(), _Weigher, arguments=arguments, title="weigh", **options))
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
        self.store, self.dropped = PassageStore.open(passages), dropped
        self.ratio, self.seed, self.most = ratio, seed, most

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
