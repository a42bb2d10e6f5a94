"""Merge the shards' results and unite them over all queries, in tasks of bounded memory, without the driver.

    shards -> (merge in groups) -> (merge, a task per span of queries) -> (unite, a task per range of passages) ->
    selection

A task's output has a piece for each task of the next step. A search may keep longer rankings than it uses, which
`growing` needs when the corpus grows.
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

PLACES = 1 << 20  # ranking entries per task, 40 bytes each during the union
FAN_IN = 64  # shard files merged per group
MOST_FILES = 512  # files that a span's task reads: 20,000 shards make 313 groups
TEXTS = 1 << 18  # chosen passages per task: 160 MB, twice, at 600 characters each


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Ranges of queries, each with rankings that fit in one task."""

    queries: int
    """number of queries"""
    depth: int
    """ranked passages per query"""
    bounds: tuple[tuple[int, int], ...]
    """first query and end (exclusive) of each range"""

    @classmethod
    def of(cls, queries: int, *, depth: int) -> "Spans":
        """Divide so that a range has about a million ranking entries."""
        each = max(1, PLACES // depth)
        bounds = tuple((first, min(first + each, queries)) for first in range(0, queries, each))
        return cls(queries=queries, depth=depth, bounds=bounds)

    def pieces(self, found: Rankings) -> list[pa.Table]:
        """Return a shard's rankings as a table per span."""
        return [found.of_queries(*bounds).to_table() for bounds in self.bounds]


def ranges_of(passages: int, *, places: int, workers: int) -> Shards:
    """Divide passage ids into ranges, at least one per worker, so that a range's chosen passages fit in one task."""
    return Shards(passages=passages, count=max(1, min(passages, max(workers, -(-places // min(PLACES, TEXTS))))))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Rankings to keep for a search of the grown corpus."""

    folder: str
    """folder to write to"""
    rest: np.ndarray
    """float32 (queries,): upper bound of the scores of passages not searched, 0 if all were searched"""


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
    """Merge the shards' rankings and write each passage once, with its best rank: a `chosen_file` per range.

    files: the shards' `shard_file`s. rows: int64 (queries,), the training row of each query. depth: passages per query.
    Returns the number of passages per range and rank, int64.
    """
    items = [{"span": i, "first": first, "last": last} for i, (first, last) in enumerate(spans.bounds)]
    read = (work, _merged_in_groups(work, files, spans, workers), spans, depth, ray.put(rows), ranges, kept)
    parallel.ray_tasks(items, _merge_span, arguments=read, workers=workers, title="merge")
    return unite_ranges(work, len(items), ranges, workers=workers)


def unite_ranges(work: str, spans: int, ranges: Shards, *, workers: int) -> list[np.ndarray]:
    """Unite the output of `write_span` for all spans: a `chosen_file` per range of passages.

    Returns the number of passages per range and rank, int64.
    """
    return parallel.ray_tasks(ranges.items(), _unite_range, arguments=(work, spans), workers=workers, title="unite")


def write_span(work: str, span: int, chosen: Selection, ranges: Shards) -> None:
    """Write one task's chosen passages, a piece per range."""
    storage.write_pieces(_span_file(work, span), (part.to_table() for part in cut(chosen, ranges)))


def shard_file(work: str, shard: int) -> str:
    """Return the location of a shard's rankings, a piece per span."""
    return storage.join(work, f"shard-{shard:05d}.pieces")


def chosen_file(work: str, number: int) -> str:
    """Return the location of a range's chosen passages, sorted, without texts."""
    return storage.join(work, f"chosen-{number:05d}.arrow")


def kept_file(folder: str, span: int, spans: Spans) -> str:
    """Return the location of a span's kept rankings: ids, scores and an upper bound of all other scores."""
    return storage.join(folder, "rankings", f"{spans.depth}-{span:05d}-of-{len(spans.bounds):05d}.arrow")


def _span_file(work: str, span: int) -> str:
    return storage.join(work, f"span-{span:05d}.pieces")


def _merged_in_groups(work: str, files: list[str], spans: Spans, workers: int) -> list[str]:
    """Merge many shard files into fewer, in one task per group; return the new files."""
    if len(files) <= MOST_FILES:
        return files
    groups = [files[i : i + FAN_IN] for i in range(0, len(files), FAN_IN)]
    items = [{"files": some, "to": storage.join(work, f"group-{i:05d}.pieces")} for i, some in enumerate(groups)]
    return parallel.ray_tasks(items, _merge_group, arguments=(spans,), workers=workers, title="merge groups")


def _merge_group(item: dict[str, Any], spans: Spans) -> str:
    """Merge the rankings of some shards, span by span; return the new file."""
    tables = (
        Rankings.of(merged(item["files"], span, queries=last - first, k=spans.depth)).to_table()
        for span, (first, last) in enumerate(spans.bounds)
    )
    storage.write_pieces(item["to"], tables)
    return item["to"]


def merged(files: list[str], span: int, *, queries: int, k: int) -> TopK:
    """Merge the rankings of one span of queries from shard files."""
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
    """Merge the rankings of some queries, and write their chosen passages, a piece per range."""
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
    """Unite all queries' choices in one range of passages; return the number of passages per rank."""
    chosen = Selection.of([])
    for span in range(spans):  # one by one, since all spans may have chosen the same passages
        more = Selection.from_table(storage.read_piece(_span_file(work, span), item["shard"]))
        chosen = Selection.of([chosen, more]).best()
    storage.write_table(chosen_file(work, item["shard"]), chosen.to_table())
    return np.bincount(chosen.ranks)


def cut(chosen: Selection, ranges: Shards) -> list[Selection]:
    """Return the passages per range, by id."""
    ordered = chosen.take(np.argsort(chosen.passages, kind="stable"))
    bounds = np.searchsorted(ordered.passages, [item["start"] for item in ranges.items()] + [ranges.passages])
    return [ordered.take(slice(a, b)) for a, b in pairwise(bounds)]
