"""Token blocks: rows of token ids for training, with the rank of the passage they come from.

A table's `tokens` column is a list of int32. The sampler uses its flat array and offsets, without copying a
memory-mapped file. Blocks are sorted by rank, so a smaller k is a prefix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tlm_ray import storage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHUNK_TEXTS = 4096  # texts tokenised at once; their ids are Python objects of 28 bytes each
GENERAL = pa.schema({"tokens": pa.large_list(pa.int32()), "rank": pa.int32()})


@dataclass(frozen=True)
class Blocks:
    """Rows of token ids."""

    tokens: np.ndarray
    """int32 (total,): all rows, concatenated"""
    offsets: np.ndarray
    """int64 (rows + 1,): start of each row in `tokens`, and the end"""
    types: np.ndarray | None = None
    """uint8 (total,): token types; None if all are 0"""
    ranks: np.ndarray | None = None
    """int32 (rows,): the rank of the passage, for general blocks"""
    labels: np.ndarray | None = None
    """labels of task blocks: (rows,) int64 classes or float64 numbers, or (rows, classes) float32 probabilities"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens per row, int64 (rows,)."""
        return np.diff(self.offsets)

    @cached_property
    def longest(self) -> int:
        """The number of tokens of the longest row."""
        return int(self.lengths.max())

    def between(self, start: int, stop: int) -> "Blocks":
        """Return the rows from `start` to below `stop`, without ranks and labels."""
        offsets = self.offsets[start : stop + 1]
        inside = slice(offsets[0], offsets[-1])
        return Blocks(self.tokens[inside], offsets - offsets[0], None if self.types is None else self.types[inside])

    def cut(self, k: int) -> "Blocks":
        """Return the blocks of passages with a rank below k, which are a prefix."""
        assert self.ranks is not None, "only general blocks carry ranks"
        rows = int(np.searchsorted(self.ranks, k, side="left"))
        return Blocks(self.tokens, self.offsets[: rows + 1], ranks=self.ranks[:rows])

    def spread(self, share: float) -> "Blocks":
        """Return a share of the general blocks, at least one, at equal distances; all of them for 1."""
        if share == 1:
            return self
        assert self.ranks is not None, "only general blocks carry ranks"
        count = max(1, round(share * len(self)))
        rows = np.arange(count) * len(self) // count
        parts = [self.tokens[start:end] for start, end in zip(self.offsets[rows], self.offsets[rows + 1], strict=True)]
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        return Blocks(np.concatenate(parts), offsets, ranks=self.ranks[rows])


def write_general_blocks(
    uri: str,
    texts: Sequence[str],
    ranks: Sequence[int] | np.ndarray,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    block_tokens: int,
) -> Blocks:
    """Tokenise ranked passages into blocks of at most `block_tokens`, special tokens included.

    ranks: (texts,). A longer passage becomes several blocks of the same rank, so no text is lost.
    """
    from tlm_ray.training.tokens.tokenizer import frame_of  # transformers: only where text is tokenised

    ranks, parts, frame = np.asarray(ranks, np.int32), [], frame_of(tokenizer)
    for chunk in _slices(len(texts)):
        encoded = tokenizer(texts[chunk], add_special_tokens=False, return_attention_mask=False, verbose=False)
        tokens, offsets = _flat(encoded["input_ids"], np.int32)
        tokens, offsets, text = _cut(tokens, offsets, frame, block_tokens=block_tokens)
        parts.append(_table(tokens, offsets).append_column("rank", pa.array(ranks[chunk][text])))
    storage.write_table(uri, pa.concat_tables(parts) if parts else GENERAL.empty_table())
    return read_blocks(uri)


def join_general_blocks(uri: str, parts: Sequence[str]) -> Blocks:
    """Concatenate general blocks of several files, in order, with one file in memory at a time."""
    storage.write_joined(uri, GENERAL, map(storage.read_table, parts))
    return read_blocks(uri)


def write_task_blocks(uri: str, split: pa.Table, tokenizer: "PreTrainedTokenizerBase", *, task_tokens: int) -> Blocks:
    """Tokenise a task's split, one row per example, truncated to `task_tokens` like in the released code."""
    options = {"truncation": True, "max_length": task_tokens, "return_attention_mask": False}
    paired, parts = any(split["text_pair"].to_pylist()), []
    for chunk in _slices(len(split)):
        texts, pairs = split["text"][chunk].to_pylist(), split["text_pair"][chunk].to_pylist()
        encoded = tokenizer(texts, pairs if paired else None, return_token_type_ids=True, **options)
        types, offsets = _flat(encoded["token_type_ids"], np.uint8)
        part = _table(*_flat(encoded["input_ids"], np.int32))
        parts.append(part.append_column("types", pa.LargeListArray.from_arrays(offsets, types)))
    storage.write_table(uri, pa.concat_tables(parts).append_column("label", split["label"]))
    return read_blocks(uri)


def write_blocks(uri: str, parts: Sequence[Blocks], labels: np.ndarray | None = None) -> None:
    """Concatenate the rows of several blocks; labels: (rows,), probabilities (rows, classes), or None."""
    tables = []
    for part in parts:
        table = _table(part.tokens[: part.offsets[-1]], part.offsets)
        if part.types is not None:
            table = table.append_column("types", pa.LargeListArray.from_arrays(part.offsets, part.types))
        tables.append(table)
    table = pa.concat_tables(tables)
    if labels is not None:
        column = labels if labels.ndim == 1 else pa.FixedSizeListArray.from_arrays(labels.ravel(), labels.shape[1])
        table = table.append_column("label", pa.array(column))
    storage.write_table(uri, table)


def read_blocks(uri: str) -> Blocks:
    """Open a table of blocks; memory-mapped if it is local."""
    table = storage.read_table(uri)
    rows = _single(table["tokens"])
    offsets = rows.offsets.to_numpy()
    flat = _values(rows, offsets)
    types = _values(_single(table["types"]), offsets) if "types" in table.column_names else None
    ranks, labels = (
        _numbers(_single(table[name])) if name in table.column_names else None for name in ("rank", "label")
    )
    return Blocks(flat, offsets, types if types is not None and types.any() else None, ranks, labels)


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(column: pa.Array) -> np.ndarray:
    """Return a column of numbers, (rows,), or of lists of equal length, (rows, length)."""
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_numpy()
    return column.flatten().to_numpy().reshape(len(column), -1)


def _values(rows: pa.Array, offsets: np.ndarray) -> np.ndarray:
    return rows.values.to_numpy()[: offsets[-1]]


def _slices(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK_TEXTS):
        yield slice(start, start + CHUNK_TEXTS)


def _table(tokens: np.ndarray, offsets: np.ndarray) -> pa.Table:
    return pa.table({"tokens": pa.LargeListArray.from_arrays(offsets, tokens)})


def _flat(rows: list[list[int]], kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat values of all rows, and their offsets, int64 (rows + 1,)."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), kind, count=offsets[-1]), offsets


def _cut(
    tokens: np.ndarray, offsets: np.ndarray, frame: tuple[list[int], list[int]], *, block_tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split each text into blocks of at most `block_tokens`, the special tokens before and after each included.

    Returns the blocks' tokens, their offsets, int64 (blocks + 1,), and each block's text, int64 (blocks,).
    """
    before, after = frame
    around = len(before) + len(after)
    inside, lengths = block_tokens - around, np.diff(offsets)
    blocks = -(-lengths // inside)  # of each text
    text = np.repeat(np.arange(len(blocks)), blocks)
    place = np.arange(len(text)) - np.repeat(np.cumsum(blocks) - blocks, blocks)  # index of a block within its text
    ends = np.cumsum(np.minimum(inside, lengths[text] - place * inside) + around)
    starts = np.concatenate([[0], ends])[:-1]
    cut = np.empty(len(tokens) + around * len(text), np.int32)
    special = np.zeros(len(cut), bool)
    at_start = [(starts + number, token) for number, token in enumerate(before)]
    at_end = [(ends - len(after) + number, token) for number, token in enumerate(after)]
    for places, token in (*at_start, *at_end):
        special[places], cut[places] = True, token
    cut[~special] = tokens
    return cut, np.concatenate([starts, ends[-1:]]) if len(ends) else np.zeros(1, np.int64), text
