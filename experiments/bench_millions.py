"""Ten million passages on one machine: a corpus recombined from a smaller one, counted, indexed and searched.

    python experiments/bench_millions.py --corpus data/corpus --task-root data/tasks --task sciie --folder /tmp/millions

Each passage is the front half of one passage and the back half of another. Two processes do what two workers of the
Ray job do; the table shows their rates and the most memory that they and this process held together. Nothing grows
with the corpus but its files: run it within a memory limit (a control group, a container) to see.
"""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import plain_errors, storage
from tlm_ray.corpus.documents import read_columns
from tlm_ray.corpus.manifest import open_corpus
from tlm_ray.corpus.passages import PARTS, SCHEMA, PassageStore, write_part
from tlm_ray.corpus.tasks import read_task
from tlm_ray.retrieval import Analyzer, Statistics
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings, probe_scores, thresholds
from tlm_ray.retrieval.engine.queries import distinct_bags
from tlm_ray.retrieval.methods.bm25 import Bm25Searcher
from tlm_ray.retrieval.search_job import ShardWorker
from tlm_ray.retrieval.shards import Shards

try:
    import psutil
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is not installed; memory is measured with it: pip install -e '.[test]'") from None

PART = 100_000  # passages
SAMPLE_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Millions:
    """What to measure on."""

    corpus: str
    """documents to recombine: file, folder, glob or URI"""
    task_root: str
    """folder of named tasks"""
    task: str = "sciie"
    """task whose training texts are the queries"""
    folder: str = "/tmp/millions"
    """where the passages go; made once"""
    passages: int = 10_000_000
    """passages to make"""
    k: int = 50
    """passages per query"""
    workers: int = 2
    """processes"""


def main() -> None:
    options = tyro.cli(Millions, description=__doc__)
    if not storage.exists(f"{options.folder}/{PARTS}"):
        run_apart(recombine, options)  # its memory is not what is measured
    table = Table("work", "s", "passages/s", "MB/s", "GiB at most", box=None, header_style="dim")
    store = PassageStore.open(options.folder)
    task = read_task(options.task, task_root=options.task_root)
    queries, _ = distinct_bags(task.train_texts, Analyzer())
    items = Shards.of(len(store), shards=0, workers=options.workers).items()
    size = storage.read_json(f"{options.folder}/bytes.json")

    def measured(title: str, work: Callable[[], Any]) -> Any:
        started, (result, most) = time.monotonic(), with_memory(work)
        taken = time.monotonic() - started
        rates = (f"{len(store) / taken:,.0f}", f"{size / 1e6 / taken:.0f}")
        table.add_row(title, f"{taken:.1f}", *rates, f"{most / 2**30:.2f}")
        return result

    work = f"{options.folder}/work-{os.getpid()}"
    total = measured("count terms", lambda: Statistics.merge(list(spread(options, items, _count, (options.folder,)))))
    leaks = Contamination(task.texts("dev") + task.texts("test"))
    shared = (options.folder, work, options.k, queries, leaks, Analyzer(), total)
    files = measured("index and search", lambda: list(spread(options, items, _search, shared)))
    top = measured("merge", lambda: _merge(files, options.k))
    storage.delete(work)
    title = f"{len(store):,} passages of {size / 1e9:.1f} GB, {len(queries):,} queries, K {options.k}"
    table.title = f"{title}, {int((top.ids >= 0).sum()):,} found"
    Console().print(table)


def recombine(options: Millions) -> None:
    """Write passages of halves of a corpus' documents, as a passages stage does."""
    corpus = open_corpus(options.corpus, column="text")
    texts = [
        text for file in corpus.files for batch in read_columns(file.uri, ["text"]) for text in batch[0].to_pylist()
    ]
    halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts if text]
    fronts, backs = (pa.array([half[i] for half in halves], pa.large_string()) for i in (0, 1))
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    parts, size = [], 0
    for part, first in enumerate(range(0, options.passages, PART)):
        count = min(PART, options.passages - first)
        rng = np.random.Generator(np.random.Philox(part))
        drawn = [some.take(rng.integers(0, len(some), count)) for some in (fronts, backs)]
        made = pc.binary_join_element_wise(*drawn, pa.scalar("", pa.large_string()))
        size += pc.sum(pc.binary_length(made)).as_py()
        table = pa.table({"text": made.cast(pa.string()), "source": pa.array(["recombined"] * count)}, SCHEMA)
        name = f"part-{part:05d}.parquet"
        parts.append({"file": name, **write_part(f"{options.folder}/{name}", [table])})
    storage.write_json(f"{options.folder}/bytes.json", size)
    storage.write_record(f"{options.folder}/{PARTS}", {"parts": parts})


def run_apart(function: Callable[..., None], *arguments: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise OSError(f"{function.__name__} ended with code {process.exitcode}")


def spread(
    options: Millions, items: list[dict[str, int]], work: Callable[..., Any], shared: tuple[Any, ...]
) -> Iterator[Any]:
    """Yield work's results on all items, from processes that each hold what is shared."""
    with multiprocessing.get_context("spawn").Pool(options.workers, _share, (shared,)) as pool:
        yield from pool.imap_unordered(work, items)


def with_memory(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return work's result and the most memory that this process and its children held together, shared pages once."""
    done, most = multiprocessing.Event(), multiprocessing.Value("q", 0)
    watcher = multiprocessing.Process(target=_watch, args=(os.getpid(), done, most), daemon=True)
    watcher.start()
    try:
        return work(), most.value
    finally:
        done.set()
        watcher.join()


def _watch(parent: int, done: Any, most: Any) -> None:
    while not done.wait(SAMPLE_S):
        own = os.getpid()
        processes = [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]
        held = 0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):  # a process of the pool may end while it is looked at
                held += process.memory_full_info().pss if process.pid != own else 0
        most.value = max(most.value, held)


SHARED: list[Any] = []  # of a process of the pool


def _share(shared: tuple[Any, ...]) -> None:
    SHARED.extend(shared)


def _count(item: dict[str, int]) -> Statistics:
    return Statistics.collect(PassageStore.open(SHARED[0]).read(item["start"], item["stop"])["text"], Analyzer())


def _search(item: dict[str, int]) -> str:
    if not isinstance(SHARED[0], ShardWorker):
        SHARED[:] = [ShardWorker(Bm25Searcher, *SHARED)]
    SHARED[0](item)
    return f"{SHARED[0].work}/shard-{item['shard']:05d}.arrow"


def _merge(files: list[str], k: int) -> Any:
    parts = [Rankings.from_table(storage.read_table(file)) for file in files]
    threshold = thresholds([probe_scores(part, k) for part in parts], k)
    return merge_rankings([part.above(threshold) for part in parts], k)


if __name__ == "__main__":
    with plain_errors():
        main()
