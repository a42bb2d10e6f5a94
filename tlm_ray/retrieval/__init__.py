"""Exact BM25 over a sharded corpus: whole-corpus `Statistics`, an `Index` per shard, `search` and an exact `merge`.

The number of shards does not change the result. This does not import Ray; `tlm_ray.retrieval.search_job` runs it on a
cluster.
"""

from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.index import Index, index_passages
from tlm_ray.retrieval.engine.kernel import search
from tlm_ray.retrieval.engine.merging import merge
from tlm_ray.retrieval.engine.queries import Queries
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.engine.topk import TopK, best_ranks

__all__ = [
    "Analyzer",
    "Index",
    "Queries",
    "Statistics",
    "TopK",
    "best_ranks",
    "index_passages",
    "merge",
    "search",
]
