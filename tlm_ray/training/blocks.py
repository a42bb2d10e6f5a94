"""Token blocks: rows of token ids as training reads them, with the rank of the passage that they come from.

A table's `tokens` column is a list of int32; one flat array and its offsets are what the sampler works on, without a
copy where the file is memory-mapped. Blocks are sorted by rank, so a smaller k is a prefix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage

CHUNK_TEXTS = 4096


@dataclass(frozen=True)
class Blocks:
    """Rows of token ids.

    tokens: int32 (total,) flat. offsets: int64 (rows + 1,). types: uint8 (total,) token types, or None where all are 0.
    ranks or labels: (rows,) int, what the rows carry, or None.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    types: np.ndarray | None = None
    ranks: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 (rows,)."""
        return np.diff(self.offsets)

    def cut(self, k: int) -> "Blocks":
        """Keep the blocks whose passage has a rank below k; a prefix, because blocks are sorted by rank."""
        assert self.ranks is not None, "only general blocks carry ranks"
        rows = int(np.searchsorted(self.ranks, k, side="left"))
        return Blocks(self.tokens, self.offsets[: rows + 1], ranks=self.ranks[:rows])


def write_general_blocks(
    uri: str,
    texts: Sequence[str],
    ranks: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    block_tokens: int,
) -> Blocks:
    """Tokenise ranked passages into blocks of at most `block_tokens`, special tokens included.

    A longer passage becomes several blocks of the same rank: no text is thrown away.
    """
    rows, kept = [], []
    for start, encoded in _encoded(tokenizer, texts):
        for place, tokens in enumerate(encoded, start):
            for block in _chunks(tokens, block_tokens - 2):
                rows.append([tokenizer.cls_token_id, *block, tokenizer.sep_token_id])
                kept.append(ranks[place])
    columns = {
        "tokens": pa.array(rows, pa.large_list(pa.int32())),
        "rank": pa.array(kept, pa.int32()),
    }
    storage.write_table(uri, pa.table(columns))
    return read_blocks(uri)


def write_task_blocks(uri: str, split: pa.Table, tokenizer: PreTrainedTokenizerBase, *, task_tokens: int) -> Blocks:
    """Tokenise a task's split, one row an example, truncated to `task_tokens` (the released code discards the rest)."""
    texts, pairs = split["text"].to_pylist(), split["text_pair"].to_pylist()
    tokens, types = [], []
    for start in range(0, len(texts), CHUNK_TEXTS):
        part = slice(start, start + CHUNK_TEXTS)
        encoded = tokenizer(
            texts[part],
            pairs[part] if any(pairs) else None,
            truncation=True,
            max_length=task_tokens,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        tokens += encoded["input_ids"]
        types += encoded["token_type_ids"]
    columns = {
        "tokens": pa.array(tokens, pa.large_list(pa.int32())),
        "types": pa.array(types, pa.large_list(pa.uint8())),
        "label": split["label"],
    }
    storage.write_table(uri, pa.table(columns))
    return read_blocks(uri)


def read_blocks(uri: str) -> Blocks:
    """Open a table of blocks; memory-mapped where it is local."""
    table = storage.read_table(uri)
    rows = _single(table["tokens"])
    offsets = rows.offsets.to_numpy()
    flat = _flat(rows, offsets)
    types = _flat(_single(table["types"]), offsets) if "types" in table.column_names else None
    ranks, labels = (
        _single(table[name]).to_numpy() if name in table.column_names else None for name in ("rank", "label")
    )
    return Blocks(flat, offsets, types if types is not None and types.any() else None, ranks, labels)


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _flat(rows: pa.Array, offsets: np.ndarray) -> np.ndarray:
    return rows.values.to_numpy()[: offsets[-1]]


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[tuple[int, list[list[int]]]]:
    for start in range(0, len(texts), CHUNK_TEXTS):
        part = list(texts[start : start + CHUNK_TEXTS])
        encoded = tokenizer(part, add_special_tokens=False, return_attention_mask=False, verbose=False)
        yield start, encoded["input_ids"]


def _chunks(tokens: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]
