"""The statistics of a whole corpus, counted shard by shard on the cluster."""

from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.shards import Shards

STATISTICS = "statistics.arrow"
FILES_MERGED = 16  # in memory at once


def collect_statistics(folder: str, passages: str, *, analyzer: Analyzer, shards: int, workers: int) -> dict[str, Any]:
    """Count the whole corpus once: passages, term occurrences and the document frequency of every term."""
    ranges = Shards.of(len(PassageStore.open(passages)), shards=shards, workers=workers)
    work = storage.join(folder, f"shards-{ranges.count}")
    arguments = (passages, work, analyzer)
    made = parallel.each(
        ranges.items(), _Counter, arguments=arguments, workers=workers, title="count terms", size="passages"
    )
    files, total = [row["file"] for row in made], Statistics.merge([])
    for i in range(0, len(files), FILES_MERGED):
        some = [Statistics.from_table(storage.read_table(file)) for file in files[i : i + FILES_MERGED]]
        total = Statistics.merge([total, *some])
    storage.write_table(storage.join(folder, STATISTICS), total.to_table())
    storage.delete(work)
    return {"passages": total.passages, "terms": total.terms, "distinct_terms": len(total.frequencies)}


def read_statistics(folder: str) -> Statistics:
    """Read what `collect_statistics` wrote."""
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
