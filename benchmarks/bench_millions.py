"""Process millions of passages on one machine: a corpus recombined from a smaller one, counted and searched on Ray.

    python benchmarks/bench_millions.py --corpus data/corpus --task-root data/tasks --task sciie --folder /tmp/millions
    python benchmarks/bench_millions.py ... --passages 100_000_000 --characters 100
    python benchmarks/bench_millions.py ... --task helpfulness --ks 5 50 500    # the driver's memory at three sizes

Each passage joins the end of one passage and the beginning of another. It runs the same code as an experiment. The
table shows rates, the peak memory of all processes (Ray's included) and that of the driver. Memory does not grow with
the corpus; run it under a memory limit (a control group, a container) to check.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import parallel, plain_errors, ray_options, storage
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.passages import PARTS, SCHEMA, PassageStore, write_part
from tlm_ray.corpus.labelled.tasks import read_task, write_task
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.methods import Bm25, Search
from tlm_ray.retrieval.statistics_job import collect_statistics

try:
    import psutil
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is not installed, but needed to measure memory; run: pip install -e '.[test]'"
    ) from None

PART = 200_000  # passages
SAMPLE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Millions:
    """What to measure on."""

    corpus: str
    """documents to recombine: file, folder, glob or URI"""
    task_root: str
    """folder with one subfolder per task"""
    task: str = "sciie"
    """task whose training texts are the queries"""
    folder: str = "/tmp/millions"
    """folder for the passages, which are made once"""
    passages: int = 10_000_000
    """passages to make"""
    characters: int = 400
    """maximum characters per half"""
    ks: list[int] = field(default_factory=lambda: [50])
    """passages per query, one search per value"""
    workers: int = 2
    """number of worker processes"""
    store_mb: int = 500
    """size of Ray's object store"""


def main() -> None:
    options = tyro.cli(Millions, description=__doc__)
    ray.init(**ray_options(), num_cpus=options.workers, object_store_memory=options.store_mb << 20)
    if not storage.exists(f"{options.folder}/{PARTS}"):
        recombine(options)
    store, size = PassageStore.open(options.folder), storage.read_json(f"{options.folder}/bytes.json")
    title = f"{len(store):,} passages of {size / 1e9:.1f} GB, training texts of {options.task}"
    table = Table("work", "s", "passages/s", "MB/s", "peak GiB", "of the driver", title=title, box=None)

    def measured(what: str, work: Callable[[], Any]) -> Any:
        started = time.monotonic()
        with most_memory() as most:
            result = work()
        taken = time.monotonic() - started
        rates = (f"{taken:.1f}", f"{len(store) / taken:,.0f}", f"{size / 1e6 / taken:.0f}")
        table.add_row(what, *rates, *(f"{most[who] / 2**30:.2f}" for who in ("all", "driver")))
        return result

    work = f"{options.folder}/work-{os.getpid()}"
    inputs = {"passages": options.folder, "task": f"{work}/task", "statistics": f"{work}/statistics"}
    write_task(inputs["task"], read_task(options.task, task_root=options.task_root))
    how: dict[str, Any] = {"shards": 0, "workers": options.workers}
    count = {"analyzer": Analyzer(), **how}
    measured("count terms", lambda: collect_statistics(inputs["statistics"], options.folder, **count))
    for k in options.ks:
        select = partial(Bm25().find, f"{work}/{k}", inputs, Search(depth=k, **how))
        found = measured(f"select, K {k}", select)
        table.add_row(f"  {found['distinct_queries']:,} queries, {found['selected']:,} selected")
    storage.delete(work)
    Console().print(table)


def recombine(options: Millions) -> None:
    """Write passages from halves of a corpus' documents, as a passages stage does."""
    corpus = open_corpus(options.corpus, column="text")
    texts = pa.concat_arrays(
        [batch[0].cast(pa.large_string()) for file in corpus.files for batch in read_columns(file.uri, ["text"])]
    ).drop_null()
    size = options.characters
    halves = pc.utf8_slice_codeunits(texts, -size), pc.utf8_slice_codeunits(texts, 0, size)
    firsts = range(0, options.passages, PART)
    items = [{"part": i, "rows": min(PART, options.passages - first)} for i, first in enumerate(firsts)]
    shared = (options.folder, *map(ray.put, halves))
    made = parallel.ray_tasks(items, _write_part, arguments=shared, workers=options.workers, title="recombine")
    storage.write_json(f"{options.folder}/bytes.json", sum(part.pop("bytes") for part in made))
    storage.write_record(f"{options.folder}/{PARTS}", {"parts": made})


def _write_part(item: dict[str, int], folder: str, fronts: pa.Array, backs: pa.Array) -> dict[str, Any]:
    rng, rows = np.random.Generator(np.random.Philox(item["part"])), item["rows"]
    drawn = [some.take(pa.array(rng.integers(0, len(some), rows))) for some in (fronts, backs)]
    texts = pc.binary_join_element_wise(*drawn, pa.scalar(" ", pa.large_string()))
    table = pa.table({"text": texts.cast(pa.string()), "source": pa.array(["recombined"] * rows)}, SCHEMA)
    name = f"part-{item['part']:05d}.parquet"
    return {"file": name, **write_part(f"{folder}/{name}", [table]), "bytes": pc.sum(pc.binary_length(texts)).as_py()}


@contextlib.contextmanager
def most_memory() -> Iterator[dict[str, int]]:
    """Yield the peak memory of this process and its children, shared pages counted once; valid after the block."""
    most, done = {"all": 0, "driver": 0}, threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not done.wait(SAMPLE_S):
            held = {"driver": me.memory_full_info().pss}
            held["all"] = held["driver"] + sum(map(_held, me.children(recursive=True)))
            most.update({who: max(most[who], amount) for who, amount in held.items()})

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def _held(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # the process may end meanwhile
        return int(process.memory_full_info().pss)
    return 0


if __name__ == "__main__":
    with plain_errors():
        main()
