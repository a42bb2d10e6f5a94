"""BM25 by the bm25s package (Lu 2024), shard by shard, as a reference for the engine of `bm25`.

The package weighs and adds terms; document frequencies, number of passages and mean length are the whole corpus', so
the number of shards does not change a weight. Cost: that of `bm25`, some ten times as long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.methods.bm25 import Bm25

if TYPE_CHECKING:
    from tlm_ray.retrieval.search_job import Searcher


@dataclass(frozen=True, kw_only=True)
class Bm25s(Bm25):
    """The passages with the best BM25 scores, by another library."""

    name: ClassVar[str] = "bm25s"
    version: ClassVar[int] = 1
    grows: ClassVar[bool] = False  # a bound on rounded scores would need a margin

    def searcher(self) -> "Callable[..., Searcher]":
        """Return what searches a shard with bm25s."""
        return Bm25sSearcher


class Bm25sSearcher:
    """Searches shards, one after another, with the same queries."""

    aligned = 1

    def __init__(self, queries: Sequence[str], analyzer: Analyzer, statistics: Statistics, k1: float, b: float):
        self.analyzer, self.statistics, self.k1, self.b = analyzer, statistics, k1, b
        self.queries = [analyzer.terms(query) for query in queries]

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best passages of a shard for each query; bm25s' own ranking breaks ties arbitrarily."""
        shape = len(self.queries), k
        top = TopK(np.full(shape, -1, np.int64), np.zeros(shape, np.float32))
        passages = [self.analyzer.terms(text or "") for text in texts.to_pylist()]
        if any(passages):
            scores_of = _index(passages, self.statistics, self.k1, self.b)
            for query, terms in enumerate(self.queries):
                scores = np.where(allowed, scores_of(terms), 0).astype(np.float32)
                best = _best(scores, k)
                top.ids[query, : len(best)], top.scores[query, : len(best)] = best, scores[best]
        return top


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the passages with the k best scores above 0, in descending order, then by passage."""
    least = np.partition(scores, -k)[-k] if k < len(scores) else 0
    found = np.flatnonzero((scores >= least) & (scores > 0))
    return found[np.argsort(-scores[found], kind="stable")][:k]


def _index(passages: list[list[str]], statistics: Statistics, k1: float, b: float) -> Callable[[list[str]], np.ndarray]:
    """Index a shard; return a function from a query's terms to its scores, float64 (passages,).

    bm25s counts a corpus itself and takes no statistics from elsewhere, so this calls the functions that its `index`
    calls, with the whole corpus' numbers. k1 and b of each shard could undo its mean length by public names alone, but
    then weights would be rounded differently per shard.
    """
    import bm25s  # imported here, because it takes 0.4 s
    from bm25s import scoring
    from scipy.sparse import csc_matrix

    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(term, len(numbers)) for term in passage] for passage in passages]
    everywhere = dict(enumerate(statistics.of_terms(pa.array(numbers, pa.large_string())).tolist()))
    lucene = scoring._select_idf_scorer("lucene")
    weights, rows, columns = scoring._build_scores_and_indices_for_matrix(
        ids,
        idf_array=scoring._build_idf_array(everywhere, statistics.passages, lucene, dtype="float64"),
        avg_doc_len=statistics.mean_terms,
        doc_frequencies=scoring._calculate_doc_freqs(ids, range(len(numbers)), show_progress=False),
        **{"k1": k1, "b": b, "delta": 0, "nonoccurrence_array": None, "method": "lucene"},
        dtype="float64",
        show_progress=False,
    )
    matrix = csc_matrix((weights, (rows, columns)), shape=(len(ids), len(numbers)))
    model = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    model.scores = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "num_docs": len(ids)}
    model.vocab_dict, model.nonoccurrence_array = numbers, None  # Lucene's variant has no such scores
    return model.get_scores
