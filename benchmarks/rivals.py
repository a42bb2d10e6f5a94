"""Other libraries' exact top-k search, each as its users would write it: for `bench_retrieval.py` alone.

`index` builds an index of texts. `prepare` converts queries to the library's input and is not timed. `search` returns
the library's own result.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import bm25s
import numpy as np
from scipy.sparse import csr_matrix

try:
    import sp_matmul_rs
    import sparse_dot_topn
    import tantivy
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is not installed, but needed for the comparison; run: pip install -e '.[bench]'"
    ) from None

K1, B = 1.2, 0.75


def words(texts: Sequence[str]) -> list[list[str]]:
    """The terms that all libraries use."""
    return [re.findall(r"\w+", text.lower()) for text in texts]


class Bm25s:
    """bm25s with its numba backend (Lu 2024)."""

    name = "bm25s"

    def index(self, texts: Sequence[str]) -> None:
        tokens = bm25s.tokenize(texts, token_pattern=r"\w+", stopwords=None, show_progress=False)
        self.engine = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numba")
        self.engine.index(tokens, show_progress=False)

    def prepare(self, queries: Sequence[str]) -> list[list[str]]:
        known = self.engine.vocab_dict
        return [[word for word in query if word in known] for query in words(queries)]

    def search(self, queries: list[list[str]], k: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        return self.engine.retrieve(queries, k=k, n_threads=threads, show_progress=False, sorted=True)


class Tantivy:
    """tantivy (Lucene in Rust), in memory; it rounds passage lengths to a byte, so scores differ slightly."""

    name = "tantivy"

    def index(self, texts: Sequence[str], tokenizer: str = "default") -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("body", stored=False, tokenizer_name=tokenizer, index_option="freq")
        self.schema = builder.build()
        index = tantivy.Index(self.schema)
        writer = index.writer(heap_size=1 << 30, num_threads=1)
        for text in texts:
            writer.add_document(tantivy.Document(body=text))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self.searcher = index.searcher()

    def index_words(self, texts: Sequence[str]) -> None:
        """Index the same words as the other libraries."""
        self.index([" ".join(text) for text in words(texts)], tokenizer="whitespace")

    def prepare(self, queries: Sequence[str]) -> list[Any]:
        return [self._query(Counter(query)) for query in words(queries)]

    def _query(self, bag: Counter[str]) -> Any:
        terms = ((tantivy.Query.term_query(self.schema, "body", term, "freq"), n) for term, n in bag.items())
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Should, tantivy.Query.boost_query(q, float(n)) if n > 1 else q) for q, n in terms]
        )

    def search(self, queries: list[Any], k: int) -> list[Any]:
        return [self.searcher.search(query, limit=k, count=False).hits for query in queries]


class SparseProduct:
    """A sparse matrix product of query counts and BM25 weights that keeps the top k."""

    def __init__(self, library: Any):
        self.name, self.multiply = library.__name__, library.sp_matmul_topn

    def index(self, texts: Sequence[str]) -> None:
        bags = [Counter(text) for text in words(texts)]
        lengths = np.array([bag.total() for bag in bags])
        self.vocabulary: dict[str, int] = {}
        columns = [self.vocabulary.setdefault(term, len(self.vocabulary)) for bag in bags for term in bag]
        rows = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
        counts = np.fromiter(chain.from_iterable(bag.values() for bag in bags), np.float64, len(rows))
        frequency = np.bincount(columns)
        idf = np.log1p((len(bags) - frequency + 0.5) / (frequency + 0.5))
        weights = idf[columns] * counts / (counts + K1 * (1 - B + B * lengths[rows] / lengths.mean()))
        shape = (len(self.vocabulary), len(bags))
        self.weights = csr_matrix((weights.astype(np.float32), (columns, rows)), shape)

    def prepare(self, queries: Sequence[str]) -> csr_matrix:
        known = [[self.vocabulary[word] for word in query if word in self.vocabulary] for query in words(queries)]
        rows = np.repeat(np.arange(len(known)), [len(query) for query in known])
        columns = np.fromiter(chain.from_iterable(known), np.int64, len(rows))
        shape = (len(known), len(self.vocabulary))
        return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape)

    def search(self, queries: csr_matrix, k: int) -> csr_matrix:
        return self.multiply(queries, self.weights, top_n=k, sort=True, n_threads=1)


SPARSE = (sp_matmul_rs, sparse_dot_topn)
