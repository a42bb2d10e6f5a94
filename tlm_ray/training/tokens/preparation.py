"""Prepare the inputs of training: tokenizer, blocks of the selected text and of the task, optional token counts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from tlm_ray import parallel, storage
from tlm_ray.corpus.labelled.tasks import SPLITS, Task
from tlm_ray.training.tokens.blocks import (
    Blocks,
    join_general_blocks,
    read_blocks,
    write_general_blocks,
    write_task_blocks,
)
from tlm_ray.training.tokens.counts import Counted, Counts, count
from tlm_ray.training.tokens.masking import Vocabulary
from tlm_ray.training.tokens.tokenizer import load_tokenizer, train_wordpiece

TOKENIZER = "tokenizer"
FACTS = "facts.json"
COUNTS = "counts.arrow"


def make_tokenizer(
    folder: str,
    tasks: Sequence[Task],
    selection: Sequence[str],
    *,
    name: str,
    vocabulary: int,
    fit: Callable[[PreTrainedTokenizerBase, Iterable[str]], PreTrainedTokenizerBase],
    k: int | None,
    needs: Sequence[str] = (),
    sentinels: int = 0,
) -> dict[str, Any]:
    """Write a tokenizer; return its vocabulary size.

    name: "trained" to train one on the selected text and the tasks' training texts, else a hub name or local folder.
    vocabulary: size of a trained one. fit: changes the pieces of another for the same texts.
    selection: locations of its tables. k: use selected text with ranks below k; None for all.
    needs: special tokens that must be there, beside as many sentinels.
    """
    texts = _Texts(tasks, selection, k, with_labels=sentinels > 0)
    if name == "trained":
        tokenizer = train_wordpiece(texts, vocabulary=vocabulary, sentinels=sentinels)
    else:
        tokenizer = load_tokenizer(name, needs=needs, sentinels=sentinels)
        tokenizer = fit(tokenizer, texts)
    with storage.folder_for_writing(storage.join(folder, TOKENIZER)) as path:
        tokenizer.save_pretrained(path)
    return {"vocabulary": len(tokenizer)}


@dataclass(frozen=True)
class _Texts:
    """The texts of the tasks' training sets and of the selection, with one table in memory at a time."""

    tasks: Sequence[Task]
    selection: Sequence[str]
    k: int | None
    with_labels: bool = False
    """with the labels' names, which a decoder writes"""

    def __iter__(self) -> Iterator[str]:
        for task in self.tasks:
            yield from task.train_texts
            yield from task.labels if self.with_labels else ()
        for table in map(storage.read_table, self.selection):
            kept = table if self.k is None else table.filter(pc.less(table["rank"], self.k))
            yield from kept["text"].to_pylist()


def make_blocks(
    folder: str,
    task: Task,
    selection: Sequence[str],
    tokenizer: str,
    *,
    block_tokens: int,
    task_tokens: int,
    workers: int,
) -> dict[str, Any]:
    """Tokenise the selection, with its ranks, and the task's three splits; write them with the tokenizer.

    selection: locations of its tables, empty for a task alone. `workers` Ray tasks share them, and their number does
    not change the blocks. The tokenizer records `task_tokens`, so that users of the trained model truncate texts
    equally.
    """
    with storage.folder_for_reading(storage.join(tokenizer, TOKENIZER)) as path:
        pieces = load_tokenizer(path)
    pieces.model_max_length = task_tokens
    with storage.folder_for_writing(storage.join(folder, TOKENIZER)) as path:
        pieces.save_pretrained(path)
    facts: dict[str, Any] = {"labels": list(task.labels), "metric": task.metric}
    if selection:
        general = _general_blocks(folder, selection, block_tokens=block_tokens, workers=workers)
        facts |= {"general_blocks": len(general), "general_tokens": len(general.tokens)}
    for split in SPLITS:
        uri = storage.join(folder, f"{split}.arrow")
        rows = write_task_blocks(uri, task.splits[split], pieces, task_tokens=task_tokens)
        facts |= {f"{split}_rows": len(rows), f"{split}_tokens": len(rows.tokens)}
    storage.write_record(storage.join(folder, FACTS), facts)
    return facts


def make_counts(folder: str, blocks: str, how: Counts, *, k: int, width: int, share: float = 1.0) -> dict[str, Any]:
    """Write initial embeddings and bias, from the task's text and general text of ranks below k (0 for none).

    share: the part of that general text to count.
    """
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        vocabulary = Vocabulary.of(load_tokenizer(path))
    read = [read_blocks(storage.join(blocks, "train.arrow"))]
    if k:
        read.append(read_blocks(storage.join(blocks, "general.arrow")).cut(k).spread(share))
    embeddings, bias = count(read, how, vocabulary=vocabulary.size, special_ids=vocabulary.special_ids, width=width)
    columns: dict[str, Any] = {"bias": bias}
    if embeddings is not None:
        columns = {"embedding": pa.FixedSizeListArray.from_arrays(embeddings.ravel(), width)} | columns
    storage.write_table(storage.join(folder, COUNTS), pa.table(columns))
    return {
        "counted_tokens": sum(int(each.offsets[-1]) for each in read),
        "embeddings": 0 if embeddings is None else int(embeddings.any(axis=1).sum()),
    }


def read_counts(folder: str) -> Counted:
    """Read the output of `make_counts`."""
    table = storage.read_table(storage.join(folder, COUNTS)).combine_chunks()
    bias = table["bias"].to_numpy().copy()
    if "embedding" not in table.column_names:
        return Counted(None, bias)
    rows = table["embedding"].chunk(0)
    return Counted(rows.values.to_numpy().reshape(len(rows), -1).copy(), bias)


def _general_blocks(folder: str, selection: Sequence[str], *, block_tokens: int, workers: int) -> Blocks:
    """Tokenise the selection table by table, then join the blocks in one file."""
    parts, items = storage.join(folder, "parts"), [{"part": i, "texts": uri} for i, uri in enumerate(selection)]
    arguments = (storage.join(folder, TOKENIZER), parts, block_tokens)
    made = parallel.ray_tasks(items, _write_part, arguments=arguments, workers=workers, title="tokenise")
    general = join_general_blocks(storage.join(folder, "general.arrow"), made)
    storage.delete(parts)
    return general


def _write_part(item: dict[str, Any], tokenizer: str, parts: str, block_tokens: int) -> str:
    """Tokenise one table of the selection, unless an interrupted run already did; return the file of its blocks."""
    uri = storage.join(parts, f"{item['part']:05d}.arrow")
    if storage.exists(uri):
        return uri
    rows = storage.read_table(item["texts"])
    with storage.folder_for_reading(tokenizer) as path:
        pieces = load_tokenizer(path)
    write_general_blocks(uri, rows["text"].to_pylist(), rows["rank"].to_numpy(), pieces, block_tokens=block_tokens)
    return uri
