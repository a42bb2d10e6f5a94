"""Estimate the input sizes of a training's stages before they run: rows, words, bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from tlm_ray import storage
from tlm_ray.corpus.documents import as_strings, file_format, read_columns
from tlm_ray.corpus.manifest import Corpus
from tlm_ray.corpus.splitting import BYTES_PER_TOKEN, split_document
from tlm_ray.corpus.tasks import Task
from tlm_ray.runs.flow.data import DataFlow
from tlm_ray.runs.recipes.cpu import PIECES
from tlm_ray.runs.recipes.recipe import Recipe

SAMPLED = 1_000  # sampled documents of a corpus
PACKED = {"parquet": 3.5, "jsonl": 1.1, "csv": 1.1, "text": 1.0}  # bytes of text per byte of a file, or the reverse
DISTINCT = 0.75  # share of distinct passages among those retrieved


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The input sizes of a training's stages."""

    text_bytes: float
    """bytes of text in the corpus"""
    passages: float
    """passages of the corpus"""
    general_tokens: Sequence[int]
    """tokens of some passages"""
    task_tokens: Sequence[int]
    """tokens of some training rows"""
    queries: int
    """training rows"""
    dev_rows: int
    test_rows: int
    classes: int
    """classes of the task, 0 for a regression"""

    def selected_bytes(self, k: int) -> float:
        """Return the bytes of text in the union of k passages per query."""
        return min(self.text_bytes, DISTINCT * k * self.queries * self.text_bytes / max(1.0, self.passages))


# Those of the embedded data, unknown before the docstrings are read.
EMBEDDED_SIZES = Sizes(
    text_bytes=24e6,
    passages=178_000,
    general_tokens=(14, 18, 22, 26, 30, 34, 40, 46, 56, 84),
    task_tokens=(20, 26, 31, 35, 40, 44, 49, 55, 63, 77),
    queries=504,
    dev_rows=300,
    test_rows=1_200,
    classes=6,
)


def sizes_of(flow: DataFlow, recipe: Recipe, task_name: str) -> Sizes:
    """Estimate sizes from the task's rows and the start of the corpus."""
    sizes = EMBEDDED_SIZES if flow.is_embedded(task_name) else _of_task(flow.read(task_name), recipe)
    corpus, share = flow.corpus_of(recipe), recipe.corpus_share
    if corpus is not None:
        text, general = _of_corpus(corpus, recipe.passage_tokens, recipe.block_tokens)
        passages = text * len(general) / (BYTES_PER_TOKEN * sum(general))
        sizes = replace(sizes, text_bytes=text, passages=passages, general_tokens=general)
    return replace(sizes, text_bytes=share * sizes.text_bytes, passages=share * sizes.passages)


def _of_task(task: Task, recipe: Recipe) -> Sizes:
    """Return the sizes of the embedded corpus with another task."""
    words = [len(text.split()) for text in task.train_texts[:SAMPLED]]
    return replace(
        EMBEDDED_SIZES,
        task_tokens=tuple(min(recipe.task_tokens, round(PIECES * count) + 2) for count in words),
        queries=len(task.splits["train"]),
        dev_rows=len(task.splits["dev"]),
        test_rows=len(task.splits["test"]),
        classes=len(task.labels),
    )


@lru_cache(maxsize=64)
def _of_corpus(corpus: Corpus, passage_tokens: int, block_tokens: int) -> tuple[float, Sequence[int]]:
    """Return the bytes of text of a corpus, and the tokens of the blocks of its first documents."""
    first = corpus.files[0].uri
    batches = read_columns(first, [corpus.column])
    texts = (t for batch in batches for t in as_strings(batch.column(0), corpus.column, first).to_pylist() if t)
    passages = [
        passage for text in islice(texts, SAMPLED) for passage in split_document(text, passage_tokens=passage_tokens)
    ]
    tokens = [min(block_tokens, len(passage.encode()) // BYTES_PER_TOKEN + 2) for passage in passages]
    packed = storage.without_query(first).lower().endswith((".gz", ".zst", ".bz2"))
    return corpus.size * (PACKED[file_format(first)] if not packed else 3.5), tuple(tokens) or (block_tokens,)
