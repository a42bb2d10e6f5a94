"""The `cleaned` stage: filter the pages of a corpus, then drop repeated spans and near-duplicates.

    corpus -> rules -> pages, span keys -> spans -> pages -> band keys -> near -> pages

Pages stay in the order of the corpus. Of equal ones the first is kept, so workers and buckets change nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tlm_ray import parallel, storage
from tlm_ray.console import console
from tlm_ray.corpus.cleaning.languages import check_language
from tlm_ray.corpus.cleaning.near import bands_of, later_of_groups
from tlm_ray.corpus.cleaning.settings import Cleaning
from tlm_ray.corpus.cleaning.steps import (
    PAGES,
    Filter,
    Job,
    drop_near,
    drop_spans,
    find_near,
    find_spans,
    write_bands,
)
from tlm_ray.corpus.general.manifest import Corpus, open_corpus
from tlm_ray.corpus.general.portions import PACKED_BYTES, portions_of

CLEANING_VERSION = 1
DIGESTS = "pages.json"
PARTS = "part-*.parquet"  # beside them may lie what a killed task was writing
BUCKET_BYTES = 1_000_000_000  # text per bucket of keys: about 10 million spans, 240 MB
FEW = 0.5  # share of pages below which the largest loss is told with a fix


def clean_corpus(folder: str, corpus: Corpus, cleaning: Cleaning, *, workers: int, buckets: int = 0) -> dict[str, Any]:
    """Write the cleaned pages of a corpus; return the numbers of all pages and of what each rule dropped.

    buckets: parts of the keys that are compared together; 0 for as many as the corpus needs. ValueError if no page is
    left, or if a library that the settings need is missing.
    """
    check_libraries(cleaning)
    portions = portions_of(corpus.files)
    buckets = buckets or 1 + corpus.size * PACKED_BYTES // BUCKET_BYTES
    job = Job(folder=folder, column=corpus.column, cleaning=cleaning, parts=len(portions), buckets=buckets)
    items = [{"part": part, "portion": portion} for part, portion in enumerate(portions)]
    counts = _sum(parallel.each(items, Filter, arguments=(job,), workers=workers, title="clean"))
    parts, keys = [{"part": part} for part in range(len(portions))], [{"bucket": bucket} for bucket in range(buckets)]

    def run(items: list[dict[str, int]], step: Any, *more: Any, title: str) -> list[Any]:
        return parallel.ray_tasks(items, step, arguments=(job, *more), workers=workers, title=title)

    if cleaning.span:
        run(keys, find_spans, title="find repeated spans")
        counts += _sum(run(parts, drop_spans, title="drop repeated spans"))
    if cleaning.near:
        run(parts, write_bands, title="hash pages")
        later = later_of_groups(np.concatenate(run(keys, find_near, title="find near-duplicates")))
        counts += _sum(run(parts, drop_near, later, title="drop near-duplicates"))
    _tell(counts, corpus, cleaning)
    found = open_corpus(storage.join(folder, PAGES, PARTS), column="text")
    storage.write_record(storage.join(folder, DIGESTS), {file.name: file.digest for file in found.files})
    return dict(counts)


def check_libraries(cleaning: Cleaning) -> None:
    """Raise ValueError if a library that the settings need is missing, or for an unknown language."""
    if cleaning.language:
        check_language(cleaning.language)
    if cleaning.near:
        bands_of(cleaning.near)


def pages_of(folder: str) -> Corpus:
    """Return the cleaned pages of a finished stage as a corpus; ValueError names a corrupt file."""
    known = storage.read_record(storage.join(folder, DIGESTS))
    found = open_corpus(storage.join(folder, PAGES, PARTS), column="text")
    for file in found.files:
        if known.get(file.name) != file.digest:
            raise ValueError(f"file {file.uri!r} is corrupt (its sha256 differs); {storage.MAKE_ANEW}")
    return found


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for each in counts:
        total.update(each)  # `+` would drop what is negative
    return total


def _tell(counts: Mapping[str, int], corpus: Corpus, cleaning: Cleaning) -> None:
    """Print what is left, and what each rule dropped; ValueError if nothing is left."""
    pages, kept = counts["pages"], counts["kept"]
    losses = sorted(((count, name) for name, count in counts.items() if ": " in name), reverse=True)
    console.print(f"cleaned: {kept:,} of {pages:,} pages are left", markup=False)
    for count, name in losses:
        console.print(f"  {count:>13,}  {name}", markup=False)
    most = max((count for count, name in losses if name.startswith("page")), default=0)
    few = counts.get("page: few_sentences", 0)
    why = f"; {few / max(1, pages):.0%} have fewer than {cleaning.sentences} sentences: lower --sentences"
    fix = why if few and few == most else ""
    if not kept:
        raise ValueError(f"corpus {corpus.uri!r}: cleaning leaves none of {pages:,} pages{fix}")
    if fix and kept < FEW * pages:
        console.print(f"cleaned: most pages are dropped{fix}", style="yellow", markup=False)
