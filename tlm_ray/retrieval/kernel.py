"""Exact search of one shard: every posting of a query's terms is added up, the k best are kept.

A query's terms are added in the order of their spelling, so a passage's score has the same bits whatever shard it is in
and whatever number its terms have there.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

from tlm_ray.retrieval.index import Index
from tlm_ray.retrieval.topk import TopK


def search(
    index: Index,
    queries: Sequence[str],
    *,
    k: int,
    threads: int = 1,
    allowed: np.ndarray | None = None,
) -> TopK:
    """Return the k best passages of each query among those that share a term with it.

    queries: texts, analysed like the passages. allowed: optional bool (index.size,), False leaves a passage out.
    threads changes the time only. ValueError if k or threads is below 1.
    """
    for name, value in (("k", k), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} {value!r}: must be a whole number of 1 or more")
    start, terms, weights = _encode(index, queries)
    ids = np.full((len(queries), k), -1, np.int64)
    scores = np.zeros((len(queries), k), np.float32)
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.shape != (index.size,)):
        raise ValueError(
            f"allowed: {allowed.dtype} {allowed.shape}; must be bool ({index.size},), one value for each passage"
        )
    blocked = np.zeros(index.size, np.bool_) if allowed is None else ~allowed
    bounds = np.linspace(0, len(queries), threads + 1).astype(np.int64)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(
                _search,
                start[a : b + 1],
                terms,
                weights,
                index.start,
                index.passages,
                index.weights,
                blocked,
                ids[a:b],
                scores[a:b],
            )
            for a, b in pairwise(bounds)
        ]
        for job in jobs:
            job.result()
    return TopK(ids, scores)


def _encode(index: Index, queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Turn queries into runs of (term number, how often), each term once, in the order of spelling."""
    start, terms, weights = [0], [], []
    for query in queries:
        bag = Counter(term for term in index.analyzer.terms(query) if term in index.vocabulary)
        for term in sorted(bag):
            terms.append(index.vocabulary[term])
            weights.append(bag[term])
        start.append(len(terms))
    return np.array(start, np.int64), np.array(terms, np.int64), np.array(weights, np.float32)


@njit(nogil=True, cache=True)
def _search(start, terms, repeats, begin, passages, weights, blocked, ids, scores):
    """For each query: add up postings, find the k-th score, keep what is above it and, at it, the lowest ids."""
    size, k = len(blocked), ids.shape[1]
    total = np.zeros(size, np.float32)
    touched = np.empty(size, np.int32)
    for query in range(len(start) - 1):
        found = 0
        for i in range(start[query], start[query + 1]):
            for p in range(begin[terms[i]], begin[terms[i] + 1]):
                passage = passages[p]
                if blocked[passage]:
                    continue
                if total[passage] == 0:
                    touched[found] = passage
                    found += 1
                total[passage] += repeats[i] * weights[p]
        seen = np.sort(touched[:found])
        values = total[seen]
        total[seen] = 0
        bar = np.partition(values, found - k)[found - k] if found > k else np.float32(0)
        room = k - np.sum(values > bar)  # places for passages that score exactly the k-th score
        kept = 0
        keep = np.empty(min(k, found), np.int64)
        for i in range(found):
            if values[i] > bar or (values[i] == bar and room > 0):
                room -= values[i] == bar
                keep[kept] = i
                kept += 1
        order = np.argsort(-values[keep], kind="mergesort")  # stable: ties stay in id order
        for rank in range(kept):
            ids[query, rank] = seen[keep[order[rank]]]
            scores[query, rank] = values[keep[order[rank]]]
