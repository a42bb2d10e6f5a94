"""Compare retrieval with other libraries: indexing and exact top-k search, one thread each.

    pip install -e '.[bench]'
    python benchmarks/bench_retrieval.py                                    # embedded data
    python benchmarks/bench_retrieval.py --corpus data/corpus --task-root data/tasks --tasks sciie imdb
    python benchmarks/bench_retrieval.py --json                             # the last line is one JSON object

All run in turns in this process. A ratio is another library's time over ours in the same turn; the table shows the
median over turns. All use the same words: lower-cased, with stop words. The process reuses freed memory, as a worker
does. Peak memory is that of a separate process, without the texts.
"""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tyro
from bench_data import Bench, load
from rich.console import Console
from rich.table import Table
from rivals import SPARSE, Bm25s, SparseProduct, Tantivy

from tlm_ray import plain_errors
from tlm_ray.process import keep_memory
from tlm_ray.retrieval import Index, Queries, TopK, index_passages, search

Row = dict[str, Any]


def main() -> None:
    options = tyro.cli(Bench, description=__doc__)
    keep_memory()
    texts, queries = load(options)
    rows = index_rows(texts, options.turns) if options.index else []
    index, rivals = index_passages(texts), make_rivals(texts.to_pylist())
    for task, own in queries.items():
        for k in options.ks:
            rows += search_rows(index, rivals, f"{task}, K {k}", own, k, options.turns)
    show(rows, f"{len(texts):,} passages, {texts.nbytes / 1e6:.0f} MB")
    if options.json:
        print(json.dumps({"passages": len(texts), "rows": rows}))


def index_rows(texts: pa.Array, turns: int) -> list[Row]:
    """Measure indexing: seconds and peak memory."""
    as_list = texts.to_pylist()
    sides: dict[str, Callable[[], Any]] = {
        "tlm_ray": lambda: index_passages(texts),
        "bm25s": lambda: Bm25s().index(as_list),
        "tantivy": lambda: Tantivy().index(as_list),
    }
    rows = measure("text to index", sides, turns)
    ours = peak_bytes(index_passages, texts)
    indexers: list[Any] = [Bm25s().index, Tantivy().index]
    for row, work in zip(rows, indexers, strict=True):
        row["memory"] = peak_bytes(work, as_list) / ours
    return rows


def make_rivals(texts: list[str]) -> list[Any]:
    """Index the texts by the same words with every other library."""
    others: list[Any] = [Bm25s(), *map(SparseProduct, SPARSE)]
    tantivy = Tantivy()
    tantivy.index_words(texts)
    for rival in others:
        rival.index(texts)
    return [*others, tantivy]


def search_rows(index: Index, rivals: list[Any], work: str, queries: list[str], k: int, turns: int) -> list[Row]:
    """Search with every library, after comparing our result with that of bm25s."""
    prepared = {rival.name: rival.prepare(queries) for rival in rivals}
    own = Queries.read(queries, index.analyzer).in_terms(index.terms)
    check_equal(search(index, own, k=k), *rivals[0].search(prepared["bm25s"], k))
    sides: dict[str, Callable[[], Any]] = {"tlm_ray": lambda: search(index, own, k=k)}
    sides |= {rival.name: lambda rival=rival: rival.search(prepared[rival.name], k) for rival in rivals}
    rows = measure(work, sides, turns)
    two = measure(work, {"1 thread": sides["tlm_ray"], "2 threads": lambda: search(index, own, k=k, threads=2)}, turns)
    for row in rows:
        row["threads"] = 1 / two[0]["ratio"]
    return rows


def measure(work: str, sides: dict[str, Callable[[], Any]], turns: int) -> list[Row]:
    """Time all sides in turns, after a warm-up call of each; return a row per side except the first."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            if turn:  # the first call compiles and warms up
                taken[name].append(time.perf_counter() - started)
    ours, *others = sides
    return [
        {
            "work": work,
            "rival": name,
            "ours_s": statistics.median(taken[ours]),
            "theirs_s": statistics.median(taken[name]),
            "ratio": statistics.median(b / a for a, b in zip(taken[ours], taken[name], strict=True)),
        }
        for name in others
    ]


def check_equal(ours: TopK, ids: np.ndarray, scores: np.ndarray) -> None:
    """Raise AssertionError unless scores agree, and ids agree where scores are not tied."""
    np.testing.assert_allclose(ours.scores, scores, rtol=1e-5, atol=1e-5)
    gaps = -np.diff(scores, axis=1, prepend=np.inf, append=scores[:, -1:])  # the score after the last is unknown
    apart = np.minimum(gaps[:, :-1], gaps[:, 1:]) > 1e-4 * np.maximum(1, scores)
    assert (ours.ids == ids)[apart & (ours.ids >= 0)].all(), "ids differ although scores are not tied"


def peak_bytes(work: Callable[[Any], Any], texts: Any) -> int:
    """Return the peak memory that `work(texts)` adds in a new process that holds the texts."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report_peak, args=(work, texts, sender))
    child.start()
    sender.close()  # so that the wait ends if the child dies
    peak = receiver.recv()
    child.join()
    return peak


def _report_peak(work: Callable[[Any], Any], texts: Any, sender: Any) -> None:
    work(texts[:1000])  # compiled
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak after receiving the texts
    before = _peak_kib()
    work(texts)
    sender.send((_peak_kib() - before) * 1024)


def _peak_kib() -> int:
    """Return this process's peak resident memory since the last reset (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def show(rows: list[Row], title: str) -> None:
    """Print the rows as a table."""
    table = Table(title=title, box=None, header_style="dim")
    for heading in ("work", "against", "ours, s", "theirs, s", "faster", "memory", "2 threads"):
        table.add_column(heading, justify="left" if heading in ("work", "against") else "right")
    for row in rows:
        extra = [f"{row[name]:.1f}x" if name in row else "" for name in ("memory", "threads")]
        times = [f"{row[name]:.3f}" for name in ("ours_s", "theirs_s")]
        table.add_row(row["work"], row["rival"], *times, f"{row['ratio']:.1f}x", *extra)
    Console().print(table)


if __name__ == "__main__":
    with plain_errors():
        main()
