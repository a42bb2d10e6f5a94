"""What training reads: a tokenizer, and blocks of the selected text and of the task."""

from typing import Any

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.tasks import SPLITS, Task
from tlm_ray.training.blocks import write_general_blocks, write_task_blocks
from tlm_ray.training.tokenizer import load_tokenizer, train_wordpiece

TOKENIZER = "tokenizer"
FACTS = "facts.json"


def make_tokenizer(
    folder: str, task: Task, selection: pa.Table | None, *, name: str, vocabulary: int
) -> dict[str, Any]:
    """Write a tokenizer: `name` "trained" trains one on the selected text and the task's training text.

    Else `name` is a hub name or a local folder. Returns its vocabulary size.
    """
    if name == "trained":
        texts = task.train_texts + (selection["text"].to_pylist() if selection is not None else [])
        tokenizer = train_wordpiece(texts, vocabulary=vocabulary)
    else:
        tokenizer = load_tokenizer(name)
    with storage.folder_for_writing(storage.join(folder, TOKENIZER)) as path:
        tokenizer.save_pretrained(path)
    return {"vocabulary": len(tokenizer)}


def make_blocks(
    folder: str,
    task: Task,
    selection: pa.Table | None,
    tokenizer: str,
    *,
    block_tokens: int,
    task_tokens: int,
) -> dict[str, Any]:
    """Tokenise the selection, ranks carried along, and the task's three splits; the tokenizer is put beside them.

    It notes `task_tokens`, so that whoever uses the trained model cuts texts where training did.
    """
    with storage.folder_for_reading(storage.join(tokenizer, TOKENIZER)) as path:
        pieces = load_tokenizer(path)
    pieces.model_max_length = task_tokens
    with storage.folder_for_writing(storage.join(folder, TOKENIZER)) as path:
        pieces.save_pretrained(path)
    facts: dict[str, Any] = {"labels": list(task.labels), "metric": task.metric}
    if selection is not None:
        texts, ranks = selection["text"].to_pylist(), selection["rank"].to_pylist()
        uri = storage.join(folder, "general.arrow")
        general = write_general_blocks(uri, texts, ranks, pieces, block_tokens=block_tokens)
        facts |= {"general_blocks": len(general), "general_tokens": int(general.lengths.sum())}
    for split in SPLITS:
        uri = storage.join(folder, f"{split}.arrow")
        rows = write_task_blocks(uri, task.splits[split], pieces, task_tokens=task_tokens)
        facts |= {f"{split}_rows": len(rows), f"{split}_tokens": int(rows.lengths.sum())}
    storage.write_json(storage.join(folder, FACTS), facts)
    return facts
