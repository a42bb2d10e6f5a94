"""BM25: each training text is a query as a whole; scores are those of one index of the whole corpus.

Cost: two passes over the corpus, to count and to index, and one search per distinct query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from tlm_ray.console import console
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.identity import LATER
from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.index import K1, B, idf, index_passages
from tlm_ray.retrieval.engine.kernel import search
from tlm_ray.retrieval.engine.queries import Queries, distinct_bags
from tlm_ray.retrieval.engine.statistics import Statistics
from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.retrieval.methods.method import Method, Search, Sources

if TYPE_CHECKING:
    from tlm_ray.retrieval.search_job import Searcher


@dataclass(frozen=True, kw_only=True)
class Bm25(Method):
    """The passages with the best BM25 scores."""

    name: ClassVar[str] = "bm25"
    version: ClassVar[int] = 4  # 4: character pairs as terms in scripts without spaces
    analyzer: Analyzer = field(default_factory=Analyzer)
    """the analyzer, which turns texts into terms"""
    k1: float = field(default=K1, metadata=LATER)
    """saturation of repeated words, 0 or more; 0 counts only presence"""
    b: float = field(default=B, metadata=LATER)
    """strength of length normalisation, 0 (none) to 1"""
    grows: ClassVar[bool] = True  # whether the selection of an earlier, smaller corpus is reused

    def __post_init__(self) -> None:
        if not (self.k1 >= 0 and 0 <= self.b <= 1):
            raise ValueError(f"k1 {self.k1:g} and b {self.b:g}: k1 must be 0 or more, b 0 to 1, such as {K1} and {B}")

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name, depth and settings."""
        # 2: at k1 0, earlier versions of this searcher missed frequent words
        presence = {"presence": 2} if self.k1 == 0 and self.searcher() is Bm25Searcher else {}
        return {**super().identity(depth), **presence}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return passages, task and the corpus' statistics."""
        return {**super().inputs(sources), "statistics": sources.statistics(self.analyzer)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Search with every distinct bag of terms; a training text without a term retrieves nothing.

        ValueError if no training text has a term.
        """
        import ray

        from tlm_ray.retrieval.search_job import search_corpus
        from tlm_ray.retrieval.statistics_job import read_statistics

        task = load_task(inputs["task"])
        queries, rows, wordless = distinct_bags(self.queries(task.query_texts), self.analyzer)
        _tell_of(wordless, task.train_texts)
        statistics = read_statistics(inputs["statistics"])
        arguments = (self.analyzer, ray.put(statistics), self.k1, self.b)

        def rise(earlier: Mapping[str, str]) -> np.ndarray:
            read = Queries.read(queries, self.analyzer)
            return rises(read, read_statistics(earlier["statistics"]), statistics)

        options: dict[str, Any] = {"arguments": arguments, "rise": rise if self.grows else None}
        common = folder, inputs["passages"], task, run
        facts = search_corpus(*common, queries=queries, rows=rows, searcher=self.searcher(), **options)
        return {"without_query": len(wordless), **facts}

    def searcher(self) -> "Callable[..., Searcher]":
        """Return what searches a shard, made with the queries, the analyzer, the statistics, k1 and b."""
        return Bm25Searcher


def _tell_of(wordless: np.ndarray, texts: Sequence[str]) -> None:
    """Print the number of training texts without a search term; ValueError if no text has one."""
    if not len(wordless):
        return
    such = f"such as row {wordless[0] + 1}: {texts[wordless[0]]!r}"
    if len(wordless) == len(texts):
        raise ValueError(
            f"none of the {len(texts):,} training texts has a word to search by, {such}; give texts with words, or "
            "train on the task alone with --k 0"
        )
    console.print(
        f"{len(wordless):,} of {len(texts):,} training texts have no word to search by, {such}; they retrieve nothing",
        markup=False,
    )


def rises(queries: Queries, before: Statistics, now: Statistics) -> np.ndarray:
    """Return per query the maximum factor by which a passage's score may have increased, float64 (queries,).

    A score is the sum over the query's terms of idf * count / (count + norm). norm decreases at most in proportion to
    the mean length. A term that occurred in no old passage adds nothing to an old passage's score.
    """
    terms = queries.terms
    known = before.of_terms(terms)
    ratio = np.where(known > 0, idf(now.of_terms(terms), now.passages) / idf(known, before.passages), 0.0)
    largest = np.maximum.reduceat(ratio[queries.numbers], queries.start[:-1])
    return largest * max(1.0, now.mean_terms / before.mean_terms)


class Bm25Searcher:
    """Searches shards, one after another, with the same queries."""

    aligned = 1

    def __init__(
        self, queries: Sequence[str], analyzer: Analyzer, statistics: Statistics, k1: float = K1, b: float = B
    ):
        self.k1, self.b = k1, b
        self.analyzer, self.queries = analyzer, Queries.read(queries, analyzer)
        self.statistics = statistics.restricted(self.queries.terms)

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best passages of a shard for each query."""
        options: dict[str, Any] = {"statistics": self.statistics, "only": self.queries.terms}
        index = index_passages(texts, analyzer=self.analyzer, k1=self.k1, b=self.b, **options)
        return search(index, self.queries, k=k, allowed=allowed, floor=floor)
