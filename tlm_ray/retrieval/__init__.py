"""Exact BM25 over a sharded corpus: `Statistics` of the whole, an `Index` a shard, `search`, and a `merge` that makes
the number of shards invisible. Free of Ray; `tlm_ray.retrieval.neighbours` runs it on a cluster.
"""

from tlm_ray.retrieval.analyzer import Analyzer
from tlm_ray.retrieval.index import Index, index_passages
from tlm_ray.retrieval.kernel import search
from tlm_ray.retrieval.merging import merge
from tlm_ray.retrieval.queries import Queries
from tlm_ray.retrieval.statistics import Statistics
from tlm_ray.retrieval.topk import TopK, best_ranks

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
