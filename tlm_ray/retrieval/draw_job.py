"""Select the passages with the largest keys, as many as another method chose, in tasks of bounded memory.

    keys of each shard -> (deal, by ranges of keys) -> (sort, a task per range of keys) -> (unite) -> selection

A sample of keys of each shard decides the ranges, and the number of shards never changes the result.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.passages import WORK, PassageStore
from tlm_ray.retrieval import union_job
from tlm_ray.retrieval.engine.topk import Selection
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.selection import read_dropped, read_rank_counts, write_chosen
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.union_job import ranges_of, unite_ranges, write_span

PROBES = 48  # minimum sample of keys per shard, from twice its share of the drawn ones; a third as many from the rest

Keys = Callable[..., np.ndarray]


def draw_largest(
    folder: str, passages: str, like: str, run: Search, *, keys: Keys, arguments: Sequence[Any] = ()
) -> dict[str, Any]:
    """Write a selection of the uncontaminated passages with the largest keys, as many as `like` has; return facts.

    like: folder of another selection, whose contaminated passages are excluded. Its ranks are assigned by descending
    keys, ties by ascending id. keys: `keys(store, start, stop, *arguments)` returns the keys of a range of passages,
    float64, which become the scores. `ray.put` references among the arguments arrive as values.
    """
    store, ranks = PassageStore.open(passages), read_rank_counts(like)
    drawn = int(ranks.sum())
    shards = Shards.of(len(store), shards=run.shards, workers=run.workers)
    ranges = ranges_of(len(store), places=drawn, workers=run.workers)
    work, options = storage.join(folder, WORK), {"workers": run.workers}
    keyed = (work, drawn, union_job.PLACES, store, ray.put(read_dropped(like)), keys, *arguments)
    told = parallel.ray_tasks(shards.items(), _write_keys, arguments=keyed, title="weigh", **options)
    cuts = cut_points(told, drawn)
    dealt = parallel.ray_tasks(shards.items(), _deal, arguments=(work, cuts), title="deal", **options)
    ends = np.cumsum(np.sum(dealt, axis=0)).tolist()
    items = [{"span": i, "first": first} for i, first in enumerate([0, *ends[:-1]])]
    parallel.ray_tasks(items, _sort, arguments=(work, shards.count, ranks, ranges), title="sort", **options)
    counts = unite_ranges(work, len(items), ranges, workers=run.workers)
    return write_chosen(folder, work, store, ranges, counts, run)


def cut_points(told: Sequence[tuple[np.ndarray, np.ndarray]], drawn: int) -> np.ndarray:
    """Return bounds of key ranges, float64 descending, with about a million keys each and `drawn` or more in all.

    told: per shard, a sample of keys in descending order, float64, and the number of its keys that reach each, int64.
    """
    keys = np.concatenate([some for some, _ in told])
    more = np.concatenate([np.diff(reach, prepend=0) for _, reach in told])
    order = np.argsort(-keys, kind="stable")
    keys, reached = keys[order], np.cumsum(more[order])
    wanted = [*range(union_job.PLACES, drawn, union_job.PLACES), drawn]
    places = np.searchsorted(reached, wanted)
    found = keys[places[places < len(keys)]]
    return np.unique(found)[::-1] if len(found) else np.array([-np.inf])


def _write_keys(
    item: dict[str, int],
    work: str,
    drawn: int,
    places: int,
    store: PassageStore,
    dropped: np.ndarray,
    keys: Keys,
    *arguments: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Write a shard's ids and keys, largest first, at most as many as are drawn; return a sample of the keys."""
    ids, found = np.arange(item["start"], item["stop"]), keys(store, item["start"], item["stop"], *arguments)
    clean = ~np.isin(ids, dropped)
    ids, found = ids[clean], found[clean]
    order = np.lexsort((ids, -found))[:drawn]
    storage.write_table(_keys_file(work, item["shard"]), pa.table({"id": ids[order], "key": found[order]}))
    many = max(PROBES, 5 * drawn // places)  # so that ranges of keys get good bounds
    return probes(found[order], share=drawn * (item["stop"] - item["start"]) / len(store), many=many)


def probes(keys: np.ndarray, *, share: float, many: int = PROBES) -> tuple[np.ndarray, np.ndarray]:
    """Return a sample of a shard's keys, which must be descending, and the number of keys that reach each.

    share: the number of keys drawn if all shards are alike. many: sample size among twice as many keys.
    """
    if not len(keys):
        return keys, np.zeros(0, np.int64)
    near = min(len(keys), int(2 * share) + many)
    reach = np.concatenate([np.linspace(1, near, many), np.geomspace(near, len(keys), many // 3)])
    reach = np.unique(np.round(reach).astype(np.int64))
    return keys[reach - 1], reach


def _deal(item: dict[str, int], work: str, cuts: np.ndarray) -> list[int]:
    """Write a shard's keys, a piece per range of keys; return their numbers."""
    table = storage.read_table(_keys_file(work, item["shard"]))
    bounds = [0, *np.searchsorted(-table["key"].to_numpy(), -cuts, side="right").tolist()]
    tables = [table.slice(a, b - a) for a, b in pairwise(bounds)]
    storage.write_pieces(_dealt_file(work, item["shard"]), tables)
    return list(map(len, tables))


def _sort(item: dict[str, int], work: str, shards: int, ranks: np.ndarray, ranges: Shards) -> None:
    """Assign the ranks in a range of keys, and write the drawn passages, a piece per range of passages."""
    table = pa.concat_tables(storage.read_piece(_dealt_file(work, shard), item["span"]) for shard in range(shards))
    ids, keys = table["id"].to_numpy(), table["key"].to_numpy()
    order = np.lexsort((ids, -keys))[: max(0, int(ranks.sum()) - item["first"])]
    rank = np.searchsorted(np.cumsum(ranks), item["first"] + np.arange(len(order)), side="right")
    nobody = np.full(len(order), -1, np.int64)
    chosen = Selection(ids[order], rank.astype(np.int32), keys[order].astype(np.float32), nobody)
    write_span(work, item["span"], chosen, ranges)


def _keys_file(work: str, shard: int) -> str:
    return storage.join(work, f"keys-{shard:05d}.arrow")


def _dealt_file(work: str, shard: int) -> str:
    return storage.join(work, f"dealt-{shard:05d}.pieces")
