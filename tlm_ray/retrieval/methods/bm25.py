"""BM25: each training text, whole, is a query; the scores are those of one index of the whole corpus.

Cost: a pass over the corpus to count and one to index at the lexicon's rate, and a search per distinct query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tlm_ray.corpus.tasks import load_task
from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.index import index_passages
from tlm_ray.retrieval.engine.kernel import search
from tlm_ray.retrieval.engine.queries import Queries, distinct_bags
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.methods.method import Method, Search, Sources


@dataclass(frozen=True, kw_only=True)
class Bm25(Method):
    """The passages with the best BM25 scores."""

    name: ClassVar[str] = "bm25"
    version: ClassVar[int] = 3
    analyzer: Analyzer = field(default_factory=Analyzer)
    """how texts become terms"""

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return passages, task and the corpus' statistics."""
        return {**super().inputs(sources), "statistics": sources.statistics(self.analyzer)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Search with every distinct bag of terms; ValueError names the first training row without a term."""
        import ray

        from tlm_ray.retrieval.search_job import search_corpus
        from tlm_ray.retrieval.statistics_job import read_statistics

        task = load_task(inputs["task"])
        queries, rows = distinct_bags(self.queries(task.train_texts), self.analyzer)
        arguments = (self.analyzer, ray.put(read_statistics(inputs["statistics"])))
        options: dict[str, Any] = {"searcher": Bm25Searcher, "arguments": arguments}
        return search_corpus(folder, inputs["passages"], task, run, queries=queries, rows=rows, **options)


class Bm25Searcher:
    """Searches shard after shard with the same queries."""

    aligned = 1

    def __init__(self, queries: Sequence[str], analyzer: Analyzer, statistics: Statistics):
        self.analyzer, self.queries = analyzer, Queries.read(queries, analyzer)
        self.statistics = statistics.restricted(self.queries.terms)

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best passages of a shard for each query."""
        index = index_passages(texts, analyzer=self.analyzer, statistics=self.statistics, only=self.queries.terms)
        return search(index, self.queries, k=k, allowed=allowed, floor=floor)
