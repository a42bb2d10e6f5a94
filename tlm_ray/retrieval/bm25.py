"""BM25 as a method: whole texts as queries, or their key phrases.

Cost: a pass over the corpus to count and one to index at the lexicon's rate, and a search a distinct query.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.index import index_passages
from tlm_ray.retrieval.kernel import search
from tlm_ray.retrieval.queries import Queries
from tlm_ray.retrieval.statistics import Statistics
from tlm_ray.retrieval.topk import TopK


class Bm25:
    """Searches shard after shard with the same queries."""

    aligned = 1

    def __init__(self, queries: Sequence[str], analyzer: Analyzer, statistics: Statistics):
        self.analyzer, self.queries = analyzer, Queries.read(queries, analyzer)
        self.statistics = statistics.restricted(self.queries.terms)

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best passages of a shard for each query."""
        index = index_passages(texts, analyzer=self.analyzer, statistics=self.statistics, only=self.queries.terms)
        return search(index, self.queries, k=k, allowed=allowed, floor=floor)
