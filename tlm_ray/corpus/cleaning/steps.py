"""The steps of cleaning, as functions of one part or one bucket of keys; `job` runs them on the cluster.

An interrupted step is not repeated for parts whose counts are written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm_ray import storage
from tlm_ray.corpus.cleaning.c4 import clean_page, few_sentences
from tlm_ray.corpus.cleaning.near import band_keys
from tlm_ray.corpus.cleaning.repeats import numbers_in, place_of, repeats_in, write_keys
from tlm_ray.corpus.cleaning.settings import Cleaning
from tlm_ray.corpus.cleaning.spans import span_keys, without_spans
from tlm_ray.corpus.general.documents import as_strings, read_columns
from tlm_ray.corpus.general.manifest import check_unchanged
from tlm_ray.corpus.general.portions import Range

WORK = "work"  # the stage's `scratch`
PAGES = "pages"  # folder of the cleaned pages: text and source, the name of the page's file
SOURCE = "source"
SCHEMA = pa.schema({"text": pa.string(), SOURCE: pa.string()})
RULES, SPANS, NEAR = "rules", "spans", "near"  # the steps that write pages


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks know."""

    folder: str
    column: str
    """name of the corpus' text column"""
    cleaning: Cleaning
    parts: int
    buckets: int

    @property
    def steps(self) -> list[str]:
        """The steps that write pages, in order."""
        return [RULES, *([SPANS] if self.cleaning.span else []), *([NEAR] if self.cleaning.near else [])]

    def pages(self, step: str, part: int) -> str:
        """Return the location of a part's pages after a step; the last step's are the result."""
        at = (PAGES,) if step == self.steps[-1] else (WORK, step)
        return storage.join(self.folder, *at, f"part-{part:05d}.parquet")

    def before(self, step: str, part: int) -> str:
        """Return the location of the pages that a step reads."""
        return self.pages(self.steps[self.steps.index(step) - 1], part)

    def keys(self, step: str) -> list[str]:
        """Return the locations of all parts' keys of spans or bands, each with a piece per bucket."""
        return [storage.join(self.folder, WORK, step, f"keys-{part:05d}.pieces") for part in range(self.parts)]

    def repeats(self, bucket: int) -> str:
        """Return the location of a bucket's repeated spans, a piece per part."""
        return storage.join(self.folder, WORK, SPANS, f"repeats-{bucket:05d}.pieces")

    def once(self, step: str, part: int, make: Callable[[Counter[str]], None]) -> dict[str, Any]:
        """Return the counts of a part, which `make` counts unless an interrupted run already did."""
        done = storage.join(self.folder, WORK, step, f"counts-{part:05d}.json")
        if not storage.exists(done):
            counts = Counter[str]()
            make(counts)
            storage.write_record(done, counts)
        return storage.read_record(done)


class Filter:
    """A worker that applies the rules to one portion of a corpus, and writes the keys of its spans."""

    def __init__(self, job: Job):
        self.job = job

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        return self.job.once(RULES, item["part"], lambda counts: self._filter(item["part"], item["portion"], counts))

    def _filter(self, part: int, portion: Sequence[Range], counts: Counter[str]) -> None:
        job, keys = self.job, list[bytes]()
        _write(job.pages(RULES, part), self._pages(portion, counts, keys))
        if job.cleaning.span:
            write_keys(job.keys(SPANS)[part], keys, place_of(part, np.arange(len(keys))), buckets=job.buckets)

    def _pages(self, portion: Sequence[Range], counts: Counter[str], keys: list[bytes]) -> Iterator[pa.Table]:
        column, cleaning = self.job.column, self.job.cleaning
        for one in portion:
            for batch in read_columns(one.file.uri, [column], one.bounds):
                texts = as_strings(batch.column(0), column, one.file.uri).to_pylist()
                pages = [page for text in texts if (page := clean_page(text or "", cleaning, counts))]
                counts.update({"pages": len(texts), "kept": len(pages)})
                if cleaning.span:
                    keys += [key for page in pages for key in span_keys(page, cleaning.span)]
                yield pa.table({"text": pages, SOURCE: [one.file.name] * len(pages)}, SCHEMA)
            check_unchanged(one.file)


def find_spans(item: dict[str, int], job: Job) -> None:
    """Write the numbers of one bucket's repeated spans, a piece per part."""
    later = np.sort(repeats_in(job.keys(SPANS), item["bucket"])[:, 1])
    pieces = (pa.table({"span": numbers_in(part, later)}) for part in range(job.parts))
    storage.write_pieces(job.repeats(item["bucket"]), pieces)


def drop_spans(item: dict[str, int], job: Job) -> dict[str, Any]:
    """Write a part's pages without their repeated spans."""
    part = item["part"]

    def make(counts: Counter[str]) -> None:
        pieces = [storage.read_piece(job.repeats(bucket), part)["span"].to_numpy() for bucket in range(job.buckets)]
        repeated = np.sort(np.concatenate(pieces))
        _write(job.pages(SPANS, part), _unrepeated(job.before(SPANS, part), repeated, job.cleaning, counts))

    return job.once(SPANS, part, make)


def _unrepeated(uri: str, repeated: np.ndarray, cleaning: Cleaning, counts: Counter[str]) -> Iterator[pa.Table]:
    """Yield pages without their repeated spans; a page that has too few sentences left is dropped."""
    first = 0
    for rows in _read(uri):
        kept = []
        for row in rows:
            spans = len(span_keys(row["text"], cleaning.span))
            low, high = np.searchsorted(repeated, [first, first + spans])
            mine, first = repeated[low:high] - first, first + spans
            if len(mine):
                row["text"] = without_spans(row["text"], mine, spans, cleaning.span)
                counts["span: repeated"] += len(mine)
                if not row["text"] or few_sentences(row["text"], cleaning):
                    counts.update({"page: repeated": 1, "kept": -1})
                    continue
            kept.append(row)
        yield pa.Table.from_pylist(kept, SCHEMA)


def write_bands(item: dict[str, int], job: Job) -> None:
    """Write the keys of the bands of a part's pages."""
    keys, owners = list[bytes](), list[int]()
    rows = chain.from_iterable(_read(job.before(NEAR, item["part"])))
    for page, row in enumerate(rows):
        own = band_keys(row["text"], job.cleaning.near)
        keys += own
        owners += [page] * len(own)
    places = place_of(item["part"], np.array(owners, np.int64))
    write_keys(job.keys(NEAR)[item["part"]], keys, places, buckets=job.buckets)


def find_near(item: dict[str, int], job: Job) -> np.ndarray:
    """Return the pages of one bucket with equal bands: int64 (pairs, 2), the places of the first and the later."""
    return np.unique(repeats_in(job.keys(NEAR), item["bucket"]), axis=0)


def drop_near(item: dict[str, int], job: Job, later: np.ndarray) -> dict[str, Any]:
    """Write a part's pages that are no near-duplicate; later: sorted places of those to drop."""
    part, dropped = item["part"], set(numbers_in(item["part"], later).tolist())

    def tables() -> Iterator[pa.Table]:
        page = 0
        for rows in _read(job.before(NEAR, part)):
            yield pa.Table.from_pylist([row for i, row in enumerate(rows, page) if i not in dropped], SCHEMA)
            page += len(rows)

    def make(counts: Counter[str]) -> None:
        _write(job.pages(NEAR, part), tables())
        counts.update({"page: near-duplicate": len(dropped), "kept": -len(dropped)})

    return job.once(NEAR, part, make)


def _read(uri: str) -> Iterator[list[dict[str, str]]]:
    """Yield pages in lists of thousands."""
    for batch in read_columns(uri, SCHEMA.names):
        yield batch.to_pylist()


def _write(uri: str, tables: Iterable[pa.Table]) -> None:
    with storage.open_output(uri) as stream, pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
