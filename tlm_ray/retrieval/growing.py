"""Search a grown corpus exactly, with less work than a full search, by reusing an earlier search of its old part.

The earlier search kept each query's best passages and `rest`, an upper bound of the scores of all other passages. The
statistics of the larger corpus increase a passage's score at most by a known factor (`rise`). So there are two
searches:

    new passages and the earlier best -> searched with all queries
    all other old passages            -> searched with the queries whose k-th best score they might reach

All other pairs of query and old passage cannot enter the result, so it equals that of a full search.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.growth import Growth
from tlm_ray.retrieval.union_job import Spans, kept_file, merged

# Rounding of weights and sums to integers changes them by less than a thousandth for passages of up to 300,000 times
# the mean length (see `engine.kernel` and `engine.index`).
SLACK = 1.001
NAMED = 16  # hexadecimal digits of a sha256 in file and folder names


@dataclass(frozen=True)
class Part:
    """A part of a corpus, for a worker that opens its files."""

    ranges: np.ndarray
    """int64 (ranges, 2): ascending ranges of passage ids in the part"""
    left_out: np.ndarray
    """int64, ascending: ids to exclude from the ranges"""
    candidates: str
    """file of candidate ids by `write_candidates`, named by its content"""
    without: bool = False
    """whether the candidates are excluded from the part, instead of added to it"""

    def name(self, queries: np.ndarray) -> str:
        """Return a name for the search of this part with some queries, distinct for other parts or queries.

        queries: int64, numbers of the queries to search with.
        """
        candidates = storage.without_query(self.candidates).rpartition("/")[2]
        hashed = [hashlib.sha256(ids.tobytes()).hexdigest() for ids in (self.ranges, self.left_out, queries)]
        named = hashlib.sha256(" ".join([*hashed, candidates]).encode()).hexdigest()[:NAMED]
        return f"{'old' if self.without else 'new'}-{named}"

    def opened(self) -> "OpenPart":
        """Read the candidates."""
        return OpenPart(self, storage.read_table(self.candidates)["passage"].to_numpy())


@dataclass(frozen=True)
class OpenPart:
    """A part of a corpus, with its candidates in memory."""

    part: Part
    candidates: np.ndarray
    """int64, ascending"""

    def within(self, start: int, stop: int) -> np.ndarray:
        """Return the part's ids from start to below stop, int64 ascending."""
        part, candidates = self.part, _between(self.candidates, start, stop)
        some = np.clip(part.ranges, start, stop)
        ranges = [np.arange(low, high) for low, high in some[some[:, 0] < some[:, 1]]]
        ids = np.setdiff1d(np.concatenate([np.zeros(0, np.int64), *ranges]), _between(part.left_out, start, stop))
        return np.setdiff1d(ids, candidates) if part.without else np.union1d(ids, candidates)


def _between(ids: np.ndarray, start: int, stop: int) -> np.ndarray:
    return ids[slice(*np.searchsorted(ids, [start, stop]))]


def can_grow(earlier: Mapping[str, str], spans: Spans) -> bool:
    """Return whether an earlier selection kept the rankings that growing needs, for the same spans of queries."""
    return all(storage.exists(kept_file(earlier["folder"], span, spans)) for span in range(len(spans.bounds)))


def write_candidates(work: str, earlier: Mapping[str, str], spans: Spans, growth: Growth) -> str:
    """Write the new ids of all passages that an earlier search kept; return the file."""
    arguments = (work, dict(earlier), spans, growth)
    (uri,) = parallel.ray_tasks([{}], _write_candidates, arguments=arguments, workers=1, title="known passages")
    return uri


def _write_candidates(item: dict[str, Any], work: str, earlier: Mapping[str, str], spans: Spans, growth: Growth) -> str:
    found = np.zeros(0, np.int64)
    for span in range(len(spans.bounds)):
        kept = storage.read_table(kept_file(earlier["folder"], span, spans))
        found = np.union1d(found, pc.list_flatten(kept["id"]).to_numpy())
    ids = np.sort(growth.moved(found))
    uri = storage.join(work, f"candidates-{hashlib.sha256(ids.tobytes()).hexdigest()[:NAMED]}.arrow")
    storage.write_table(uri, pa.table({"passage": ids}))
    return uri


def bounds_of_rest(
    files: list[str], spans: Spans, earlier: Mapping[str, str], *, depth: int, rise: np.ndarray, workers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bound the scores of the old passages that the first search excluded.

    files: results of the first search. depth: passages per query. rise: float64 (queries,), the maximum factor by which
    a score increased. Returns the bounds, float32 (queries,), and the queries that may select such a passage, int64.
    """
    items = [{"span": i, "first": first, "last": last} for i, (first, last) in enumerate(spans.bounds)]
    arguments = (files, spans, dict(earlier), depth, rise)
    made = parallel.ray_tasks(items, _bound_span, arguments=arguments, workers=workers, title="bound")
    return np.concatenate([bound for bound, _ in made]), np.flatnonzero(np.concatenate([open for _, open in made]))


def _bound_span(
    item: dict[str, int], files: list[str], spans: Spans, earlier: Mapping[str, str], depth: int, rise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a span's queries, float32, and whether a query may select an excluded passage, bool."""
    first, last = item["first"], item["last"]
    rest = storage.read_table(kept_file(earlier["folder"], item["span"], spans))["rest"].to_numpy()
    bound = np.nextafter((rest * rise[first:last] * SLACK).astype(np.float32), np.float32(np.inf))
    bound = np.where(rest > 0, bound, np.float32(0))
    top = merged(files, item["span"], queries=last - first, k=spans.depth)
    return bound, (bound > 0) & (bound >= top.scores[:, depth - 1])
