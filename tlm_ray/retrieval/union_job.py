"""From what each shard found to what all queries chose, in tasks of bounded memory: nothing of it passes the driver.

    shards -> (merge in groups) -> (merge, a task a span of queries) -> (unite, a task a range of passages) -> selection

What a task leaves for each of the next is a piece of its file. A search may keep more of each query's ranking than it
chooses from: what `growing` needs when the corpus has grown.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings
from tlm_ray.retrieval.engine.topk import Selection, TopK, best_ranks
from tlm_ray.retrieval.shards import Shards

PLACES = 1 << 20  # of rankings in a task, 40 bytes each while they are united
FAN_IN = 64  # files of shards that are merged first
MOST_FILES = 512  # that a span's task reads: of 20,000 shards it has 313 groups
TEXTS = 1 << 18  # of chosen passages in a task: 160 MB, twice, at 600 characters each


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Ranges of queries, whose rankings fit in a task each."""

    queries: int
    """of all ranges"""
    depth: int
    """passages of each that are ranked"""
    bounds: tuple[tuple[int, int], ...]
    """first query of each range, and the one after its last"""

    @classmethod
    def of(cls, queries: int, *, depth: int) -> "Spans":
        """Cut so that a range has about a million rankings' places."""
        each = max(1, PLACES // depth)
        bounds = tuple((first, min(first + each, queries)) for first in range(0, queries, each))
        return cls(queries=queries, depth=depth, bounds=bounds)

    def pieces(self, found: Rankings) -> list[pa.Table]:
        """Return a shard's rankings as a table for each span."""
        return [found.of_queries(*bounds).to_table() for bounds in self.bounds]


def ranges_of(passages: int, *, places: int, workers: int) -> Shards:
    """Cut the passages' ids into ranges, so that those of a range that may be chosen fit in a task; one a worker."""
    return Shards(passages=passages, count=max(1, min(passages, max(workers, -(-places // min(PLACES, TEXTS))))))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of all rankings for the day that the corpus has grown."""

    folder: str
    """where"""
    rest: np.ndarray
    """float32 (queries,): a bound of the scores of passages that were not searched, 0 where all were"""


def unite(
    work: str,
    files: list[str],
    spans: Spans,
    ranges: Shards,
    *,
    rows: np.ndarray,
    depth: int,
    workers: int,
    kept: Kept | None = None,
) -> list[np.ndarray]:
    """Merge the shards' rankings and keep each passage once, with its best rank: a `chosen_file` for each range.

    files: the shards' `shard_file`s. rows: int64 (queries,), the training row that each query stands for. depth:
    passages that each query chooses. Returns how many passages of each range have each rank, int64.
    """
    items = [{"span": i, "first": first, "last": last} for i, (first, last) in enumerate(spans.bounds)]
    read = (work, _merged_in_groups(work, files, spans, workers), spans, depth, ray.put(rows), ranges, kept)
    parallel.ray_tasks(items, _merge_span, arguments=read, workers=workers, title="merge")
    return unite_ranges(work, len(items), ranges, workers=workers)


def unite_ranges(work: str, spans: int, ranges: Shards, *, workers: int) -> list[np.ndarray]:
    """Unite what `write_span` wrote of each span: a `chosen_file` for each range of passages.

    Returns how many passages of each range have each rank, int64.
    """
    return parallel.ray_tasks(ranges.items(), _unite_range, arguments=(work, spans), workers=workers, title="unite")


def write_span(work: str, span: int, chosen: Selection, ranges: Shards) -> None:
    """Leave what one task chose of each range of passages."""
    storage.write_pieces(_span_file(work, span), (part.to_table() for part in cut(chosen, ranges)))


def shard_file(work: str, shard: int) -> str:
    """Return where the rankings of a shard lie, a piece for each span."""
    return storage.join(work, f"shard-{shard:05d}.pieces")


def chosen_file(work: str, number: int) -> str:
    """Return where the chosen passages of a range lie, sorted, without their texts."""
    return storage.join(work, f"chosen-{number:05d}.arrow")


def kept_file(folder: str, span: int, spans: Spans) -> str:
    """Return where a selection keeps the rankings of a span's queries: ids, scores and what no other score exceeds."""
    return storage.join(folder, "rankings", f"{spans.depth}-{span:05d}-of-{len(spans.bounds):05d}.arrow")


def _span_file(work: str, span: int) -> str:
    return storage.join(work, f"span-{span:05d}.pieces")


def _merged_in_groups(work: str, files: list[str], spans: Spans, workers: int) -> list[str]:
    """Return files of fewer rankings, where there are many: those of some shards merged, in as many tasks as groups."""
    if len(files) <= MOST_FILES:
        return files
    groups = [files[i : i + FAN_IN] for i in range(0, len(files), FAN_IN)]
    items = [{"files": some, "to": storage.join(work, f"group-{i:05d}.pieces")} for i, some in enumerate(groups)]
    return parallel.ray_tasks(items, _merge_group, arguments=(spans,), workers=workers, title="merge groups")


def _merge_group(item: dict[str, Any], spans: Spans) -> str:
    """Merge the rankings of some shards, span by span; return the file that holds them."""
    tables = (
        Rankings.of(merged(item["files"], span, queries=last - first, k=spans.depth)).to_table()
        for span, (first, last) in enumerate(spans.bounds)
    )
    storage.write_pieces(item["to"], tables)
    return item["to"]


def merged(files: list[str], span: int, *, queries: int, k: int) -> TopK:
    """Merge what the files of shards hold of one span of queries."""
    read = (storage.read_piece(file, span) for file in files)
    return merge_rankings(map(Rankings.from_table, read), queries=queries, k=k)


def _merge_span(
    item: dict[str, int],
    work: str,
    files: list[str],
    spans: Spans,
    depth: int,
    rows: np.ndarray,
    ranges: Shards,
    kept: Kept | None,
) -> None:
    """Merge the rankings of some queries, and leave what they chose of each range of passages."""
    span, mine = item["span"], slice(item["first"], item["last"])
    top = merged(files, span, queries=item["last"] - item["first"], k=spans.depth)
    if kept is not None:
        rest = pa.array(np.maximum(kept.rest[mine], top.scores[:, -1]))
        storage.write_table(
            kept_file(kept.folder, span, spans), Rankings.of(top).to_table().append_column("rest", rest)
        )
    chosen = best_ranks(TopK(top.ids[:, :depth], top.scores[:, :depth]), rows[mine])
    write_span(work, span, chosen, ranges)


def _unite_range(item: dict[str, int], work: str, spans: int) -> np.ndarray:
    """Unite what all queries chose of one range of passages; return how many have each rank."""
    chosen = Selection.of([])
    for span in range(spans):  # one by one: all spans may have chosen the same passages
        more = Selection.from_table(storage.read_piece(_span_file(work, span), item["shard"]))
        chosen = Selection.of([chosen, more]).best()
    storage.write_table(chosen_file(work, item["shard"]), chosen.to_table())
    return np.bincount(chosen.ranks)


def cut(chosen: Selection, ranges: Shards) -> list[Selection]:
    """Return the passages of each range, by id."""
    ordered = chosen.take(np.argsort(chosen.passages, kind="stable"))
    bounds = np.searchsorted(ordered.passages, [item["start"] for item in ranges.items()] + [ranges.passages])
    return [ordered.take(slice(a, b)) for a, b in pairwise(bounds)]
