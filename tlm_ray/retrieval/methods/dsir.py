"""DSIR: draw passages by importance, the likelihood ratio of task and corpus words (Xie et al. 2023).

A text is a bag of hashed words and word pairs. p and q are the shares of each bucket in the task's training texts and
in the corpus. A passage's log weight is sum(count * log(p / q)). Adding Gumbel noise and keeping the largest draws
passages without replacement in proportion to exp(weight). Cost: two passes over the corpus, for any number of queries.
Words are those of the default analyzer; the authors' code also counts punctuation.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.lexicon import Lexicon, as_strings
from tlm_ray.retrieval.engine.noise import gumbel
from tlm_ray.retrieval.methods.bm25 import Bm25
from tlm_ray.retrieval.methods.method import Method, Search, Sources, check_like

if TYPE_CHECKING:
    from tlm_ray.corpus.general.passages import PassageStore

SEED = 0
BUCKETS = 10_000
SMOOTHING = 1e-8  # added to every share, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class Dsir(Method):
    """As many uncontaminated passages as `like` chose, at every k, drawn by importance for the task.

    Drawn passages get the ranks of `like` in descending order of noisy weights, which are their scores.
    """

    name: ClassVar[str] = "dsir"
    version: ClassVar[int] = 2  # 2: character pairs as terms in scripts without spaces
    lists_leaks: ClassVar[bool] = False
    like: Method = field(default_factory=Bm25)
    """method that searches, whose selection sets the number of passages"""

    def __post_init__(self) -> None:
        check_like(self.like)

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name and seed; depth and settings of `like` belong to the identity of its selection."""
        return {"method": self.name, "seed": SEED}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return passages, task and the selection of `like`, under its name."""
        return {**super().inputs(sources), self.like.name: sources.neighbours(self.like)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Read the corpus twice: count its words, then weight each passage."""
        import ray

        from tlm_ray import parallel
        from tlm_ray.corpus.general.passages import PassageStore
        from tlm_ray.retrieval.draw_job import draw_largest
        from tlm_ray.retrieval.shards import Shards

        store = PassageStore.open(inputs["passages"])
        items = Shards.of(len(store), shards=run.shards, workers=run.workers).items()
        options: dict[str, Any] = {"workers": run.workers, "size": "passages"}
        counted = parallel.each(items, _BucketCounter, arguments=(store,), title="count words", **options)
        corpus = sum(counted, np.zeros(BUCKETS, np.int64))
        ratio = ray.put(log_ratio(count_buckets(load_task(inputs["task"]).query_texts), corpus))
        like = inputs[self.like.name]
        return draw_largest(folder, inputs["passages"], like, run, keys=_noisy_weights, arguments=(ratio,))


class _BucketCounter:
    """Counts the hashed words of one shard."""

    def __init__(self, store: "PassageStore"):
        self.store = store

    def __call__(self, item: dict[str, int]) -> np.ndarray:
        return count_buckets(self.store.read(item["start"], item["stop"])["text"])


def _noisy_weights(store: "PassageStore", start: int, stop: int, ratio: np.ndarray) -> np.ndarray:
    return log_weights(store.read(start, stop)["text"], ratio) + gumbel(np.arange(start, stop), seed=SEED)


def count_buckets(texts: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return the count of the texts' words and word pairs per bucket, int64 (BUCKETS,)."""
    numbers, lengths, hashes = _read(texts)
    counts = np.zeros(BUCKETS, np.int64)
    _count(numbers, lengths, hashes, counts)
    return counts


def log_ratio(task: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """Return log(p / q) per bucket from counts of task and corpus, float64 (BUCKETS,)."""
    p, q = (counts / max(1, counts.sum()) + SMOOTHING for counts in (task, corpus))
    return np.log(p) - np.log(q)


def log_weights(texts: Sequence[str | None] | pa.Array | pa.ChunkedArray, ratio: np.ndarray) -> np.ndarray:
    """Return each text's log importance weight, float64 (len(texts),), a function of the text and the ratio only."""
    numbers, lengths, hashes = _read(texts)
    weights = np.zeros(len(lengths), np.float64)
    _weigh(numbers, lengths, hashes, ratio, weights)
    return weights


def _read(texts: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lexicon = Lexicon()
    numbers, lengths = lexicon.read(as_strings(texts))
    hashes = np.array([zlib.crc32(word.encode()) for word in lexicon.words().to_pylist()], np.uint64)
    return numbers, lengths, hashes


@compiled
def _pair(first, second):
    """Return the bucket of a word pair, given both hashes; all uint64."""
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (second + np.uint64(0xBF58476D1CE4E5B9))
    mixed *= np.uint64(0x94D049BB133111EB)
    return (mixed ^ mixed >> np.uint64(32)) % np.uint64(BUCKETS)


@compiled
def _count(numbers, lengths, hashes, counts):
    """Count words and word pairs per bucket.

    numbers: int32 (tokens,), word numbers. lengths: int64 (texts,), tokens per text. hashes: uint64 (words,). counts:
    int64 (BUCKETS,), out.
    """
    at = 0
    for length in lengths:
        for place in range(at, at + length):
            counts[hashes[numbers[place]] % np.uint64(BUCKETS)] += 1
            if place > at:
                counts[_pair(hashes[numbers[place - 1]], hashes[numbers[place]])] += 1
        at += length


@compiled
def _weigh(numbers, lengths, hashes, ratio, weights):
    """Add each text's ratios, float64 (BUCKETS,), to weights, float64 (texts,); other arguments as in `_count`."""
    at = 0
    for text, length in enumerate(lengths):
        for place in range(at, at + length):
            weights[text] += ratio[hashes[numbers[place]] % np.uint64(BUCKETS)]
            if place > at:
                weights[text] += ratio[_pair(hashes[numbers[place - 1]], hashes[numbers[place]])]
        at += length
