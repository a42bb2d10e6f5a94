"""Measure how retrieval scales with passages, queries, K and shards, and compare Ray with plain processes.

    python benchmarks/bench_growth.py                                       # embedded data
    python benchmarks/bench_growth.py --corpus data/corpus --task-root data/tasks --tasks sciie
    python benchmarks/bench_growth.py --corpus data/corpus --task-root data/tasks --tasks imdb --ray --k 500

With --ray, a Ray job of two workers and two plain processes search the same shards in turns. Both do a worker's full
work per shard: read, exclude contamination, index, search, write.
"""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import tyro
from bench_data import Bench, load
from rich.console import Console
from rich.table import Table

from tlm_ray import parallel, plain_errors, ray_options, storage
from tlm_ray.corpus.general.passages import PARTS, SCHEMA, write_part
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.retrieval import Analyzer, Queries, Statistics, index_passages, search
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings, update_best
from tlm_ray.retrieval.engine.queries import distinct_bags
from tlm_ray.retrieval.methods.bm25 import Bm25Searcher
from tlm_ray.retrieval.search_job import ShardWorker
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.union_job import Spans

PARTS_OF_ONE = (1 / 8, 1 / 4, 1 / 2, 1)
SHARDS = (1, 2, 7, 16)
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Growth(Bench):
    """What to measure on."""

    queries: int = 1000
    """queries of the task, spread evenly over its rows"""
    k: int = 50
    """passages per query, unless K varies"""
    ray: bool = False
    """compare a Ray job with two processes instead"""


def main() -> None:
    options = tyro.cli(Growth, description=__doc__)
    texts, tasks = load(options)
    (name, queries), *_ = tasks.items()
    title = f"{len(texts):,} passages, {len(queries):,} queries of {name}, K {options.k}"
    rows = on_ray(texts, queries, options) if options.ray else in_one_process(texts, queries, options)
    table = Table("what", "amount", "s, median", "of the first", title=title, box=None, header_style="dim")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def in_one_process(texts: pa.Array, queries: list[str], options: Growth) -> list[tuple[str, ...]]:
    index, own = index_passages(texts), Queries.read(queries, Analyzer())
    total = Statistics.collect(texts, Analyzer())
    whole = search(index, own, k=options.k)
    for shards in SHARDS:
        cut = search_shards(texts, own, total, shards, options.k)
        assert cut.ids.tobytes() == whole.ids.tobytes() and cut.scores.tobytes() == whole.scores.tobytes()

    def index_part(share: float) -> None:
        index_passages(texts[: int(len(texts) * share)])

    def search_part(share: float) -> None:
        search(index, queries[: int(len(queries) * share)], k=options.k)

    rows = grow("passages indexed", PARTS_OF_ONE, index_part, options.turns)
    rows += grow("queries searched", PARTS_OF_ONE, search_part, options.turns)
    rows += grow("K", options.ks, lambda k: search(index, own, k=k), options.turns)
    rows += grow("shards", SHARDS, lambda n: search_shards(texts, own, total, n, options.k), options.turns)
    return rows


def search_shards(texts: pa.Array, queries: Queries, total: Statistics, shards: int, k: int) -> Any:
    """Index, search and merge shards as the job does, with one worker."""
    best, parts = np.zeros((len(queries), k), np.float32), []
    for item in Shards(passages=len(texts), count=shards).items():
        index = index_passages(texts[item["start"] : item["stop"]], statistics=total, only=queries.terms)
        found = Rankings.of(search(index, queries, k=k, floor=best[:, -1]), offset=item["start"]).above(best[:, -1])
        update_best(best, found.start, found.scores)
        parts.append(found)
    return merge_rankings(parts, queries=len(queries), k=k)


def grow(what: str, amounts: Any, work: Callable[[Any], Any], turns: int) -> list[tuple[str, ...]]:
    """Time the work at each amount in turns; the last column is the median ratio to the turn's first amount."""
    taken: dict[Any, list[float]] = {amount: [] for amount in amounts}
    for turn in range(turns + 1):
        for amount in amounts:
            started = time.perf_counter()
            work(amount)
            if turn:
                taken[amount].append(time.perf_counter() - started)
    first = taken[amounts[0]]
    ratios = {
        amount: statistics.median(b / a for a, b in zip(first, own, strict=True)) for amount, own in taken.items()
    }
    return [(what, f"{a}", f"{statistics.median(own):.3f}", f"{ratios[a]:.2f}x") for a, own in taken.items()]


def on_ray(texts: pa.Array, queries: list[str], options: Growth) -> list[tuple[str, ...]]:
    task = read_task(options.tasks[0], task_root=options.task_root) if options.tasks else None
    ray.init(**ray_options())
    with tempfile.TemporaryDirectory() as folder:
        write_passages(folder, texts)
        queries, *_ = distinct_bags(queries, Analyzer())
        leaks = Contamination(task.texts("dev") + task.texts("test") if task else [])
        shared = (queries, leaks, Analyzer(), Statistics.collect(texts, Analyzer()))
        items = Shards.of(len(texts), shards=0, workers=WORKERS).items()
        sides = {"two processes": in_processes, "Ray, two workers": in_a_job}
        return grow("side", list(sides), lambda side: sides[side](folder, items, options.k, shared), options.turns)


def write_passages(folder: str, texts: pa.Array) -> None:
    """Write passages as a passages stage does."""
    table = pa.table({"text": texts.cast(pa.string()), "source": pa.array(["bench"] * len(texts))}, SCHEMA)
    part = {"file": "part.parquet", **write_part(f"{folder}/part.parquet", [table])}
    storage.write_record(f"{folder}/{PARTS}", {"parts": [part]})


def in_a_job(folder: str, items: list[dict[str, int]], k: int, shared: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as work:
        spans = Spans.of(len(shared[0]), depth=k)
        arguments = (Bm25Searcher, folder, work, spans, *map(ray.put, shared[:2]), shared[2], ray.put(shared[3]))
        list(parallel.each(items, ShardWorker, arguments=arguments, workers=WORKERS, title="search", size="passages"))


def in_processes(folder: str, items: list[dict[str, int]], k: int, shared: tuple[Any, ...]) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as work:
        arguments = (folder, work, k, shared)
        running = [context.Process(target=_process, args=(items[i::WORKERS], *arguments)) for i in range(WORKERS)]
        for process in running:
            process.start()
        for process in running:
            process.join()
            assert process.exitcode == 0


def _process(items: list[dict[str, int]], folder: str, work: str, k: int, shared: tuple[Any, ...]) -> None:
    worker = ShardWorker(Bm25Searcher, folder, work, Spans.of(len(shared[0]), depth=k), *shared)
    for item in items:
        worker(item)


if __name__ == "__main__":
    with plain_errors():
        main()
