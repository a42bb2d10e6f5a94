"""Count the statistics of the whole corpus, shard by shard on the cluster."""

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.growth import largest_within
from tlm_ray.corpus.general.passages import WORK, PassageStore
from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.shards import Shards, items_within

STATISTICS = "statistics.arrow"
FILES_MERGED = 16  # maximum number of files merged by one task


def collect_statistics(
    folder: str,
    passages: str,
    *,
    analyzer: Analyzer,
    shards: int,
    workers: int,
    earlier: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Count the whole corpus: passages, term occurrences and the document frequency of every term.

    earlier: folders of statistics of other corpora, with their `passages`. If the corpus has grown from one of them,
    only new passages are counted.
    """
    if earlier and (before := largest_within(passages, earlier)):
        result, growth = before
        items, counted = items_within(growth.new.tolist()), [storage.join(result["folder"], STATISTICS)]
        work = storage.join(folder, WORK, f"grown-{crc32(growth.new.tobytes()):08x}")
    else:
        ranges = Shards.of(len(PassageStore.open(passages)), shards=shards, workers=workers)
        items, counted, work = ranges.items(), [], storage.join(folder, WORK, f"shards-{ranges.count}")
    arguments = (passages, work, analyzer)
    made = parallel.each(items, _Counter, arguments=arguments, workers=workers, title="count terms", size="passages")
    return _merge([*counted, *(row["file"] for row in made)], storage.join(folder, STATISTICS), work, workers)


def _merge(files: list[str], to: str, work: str, workers: int) -> dict[str, Any]:
    """Merge the files of shards in groups, until one task can merge the rest; return the totals."""
    level = 0
    while len(files) > FILES_MERGED:
        groups = [files[i : i + FILES_MERGED] for i in range(0, len(files), FILES_MERGED)]
        files = [storage.join(work, f"merged-{level}-{i:05d}.arrow") for i in range(len(groups))]
        items = [{"files": some, "to": file} for some, file in zip(groups, files, strict=True)]
        parallel.ray_tasks(items, _merge_files, arguments=(), workers=workers, title="merge terms")
        level += 1
    last = [{"files": files, "to": to}]
    return parallel.ray_tasks(last, _merge_files, arguments=(), workers=1, title="merge terms")[0]


def _merge_files(item: dict[str, Any]) -> dict[str, Any]:
    """Add up the statistics of some files, write the sum and return its totals."""
    total = Statistics.merge([Statistics.from_table(storage.read_table(file)) for file in item["files"]])
    storage.write_table(item["to"], total.to_table())
    return {"passages": total.passages, "terms": total.terms, "distinct_terms": len(total.frequencies)}


def read_statistics(folder: str) -> Statistics:
    """Read the output of `collect_statistics`."""
    return Statistics.from_table(storage.read_table(storage.join(folder, STATISTICS)))


class _Counter:
    """Counts one shard."""

    def __init__(self, passages: str, work: str, analyzer: Analyzer):
        self.store, self.work, self.analyzer = PassageStore.open(passages), work, analyzer

    def __call__(self, item: dict[str, int]) -> dict[str, Any]:
        uri = storage.join(self.work, f"shard-{item['shard']:05d}.arrow")
        if not storage.exists(uri):
            texts = self.store.read(item["start"], item["stop"])["text"]
            storage.write_table(uri, Statistics.collect(texts, self.analyzer).to_table())
        return {"file": uri}
