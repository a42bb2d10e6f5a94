"""Turn text into numbered words in one compiled pass over Arrow's buffers, without a Python object per token.

A text is read in two steps: all its words are located (`find_words`) and their hash-table slots prefetched, then each
is looked up. A word of up to 8 bytes is its own key; a longer one is compared in full if its hash matches, so different
words never collide.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.machine import load_8_bytes, prefetch, store_8_bytes
from tlm_ray.retrieval.engine.words import CONTEXT, KNUTH, FoundWords, find_words, lower_case_table


class WordTable(NamedTuple):
    """All words so far, with their hash table: linear probing, at most half full."""

    slots: np.ndarray
    """uint64 (slots, 2): a word's key, and its number + 1 or 0 for a free slot; slots is a power of two"""
    shift: np.uint64
    """right shift that turns a hash into a slot number"""
    pool: np.ndarray
    """uint8 (bytes,): the words, concatenated"""
    ends: np.ndarray
    """int64 (slots // 2 + 1,): word w is pool[ends[w]:ends[w + 1]]"""

    @classmethod
    def of_slots(cls, slots: np.ndarray, pool: np.ndarray, ends: np.ndarray) -> "WordTable":
        """Create a table from arrays; the slots must be filled or zeros."""
        return cls(slots, np.uint64(65 - len(slots).bit_length()), pool, ends)


class Lexicon:
    """Numbers distinct words in order of appearance; grows while reading."""

    def __init__(self) -> None:
        slots, pool = np.zeros((1 << 15, 2), np.uint64), np.zeros(1 << 18, np.uint8)
        self._table = WordTable.of_slots(slots, pool, np.zeros((1 << 14) + 1, np.int64))
        self._size = 0
        self._tokens = np.zeros(0, np.int32)
        self._found = FoundWords.of_text_bytes(1 << 15)

    def __len__(self) -> int:
        return self._size

    def read(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the word numbers of all texts, int32, and the number of words per text, int64 (len(texts),).

        texts: an Arrow string array; a null has no words. The next call overwrites the numbers. ValueError for invalid
        UTF-8.
        """
        data, offsets = _buffers(texts)
        most = int(offsets[-1] - offsets[0]) // 2 + len(texts)
        if len(self._tokens) < most:
            self._tokens = np.empty(most, np.int32)
        tokens = self._tokens
        lengths = np.zeros(len(texts), np.int64)
        state = np.array([0, 0, self._size], np.int64)  # next text, tokens so far, words so far
        while state[0] < len(texts):
            stopped_for_context = self._read(data, offsets, tokens, lengths, state)
            if stopped_for_context:
                self._read_lowered(texts[int(state[0])].as_py(), tokens, lengths, state)
            elif state[0] < len(texts):
                self._grow(int(offsets[state[0] + 1] - offsets[state[0]]))
        self._size = int(state[2])
        return tokens[: state[1]], lengths

    def words(self, start: int = 0) -> pa.Array:
        """Return the words from number `start` on."""
        ends = self._table.ends[start : self._size + 1].copy()
        data = self._table.pool[ends[0] : ends[-1]].copy()
        return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends - ends[0]), pa.py_buffer(data))

    def _read(
        self, data: np.ndarray, offsets: np.ndarray, tokens: np.ndarray, lengths: np.ndarray, state: np.ndarray
    ) -> bool:
        return _read(data, offsets, lower_case_table(), self._found, self._table, (tokens, lengths), state)

    def _read_lowered(self, text: str, tokens: np.ndarray, lengths: np.ndarray, state: np.ndarray) -> None:
        """Read one text that Python has lower-cased; it has at most one word per two bytes, so `tokens` has room."""
        data, offsets = _buffers(pa.array([text.lower()], pa.large_string()))
        inner = np.array([0, state[1], state[2]], np.int64)
        length = np.zeros(1, np.int64)
        while inner[0] < 1:
            self._read(data, offsets, tokens, length, inner)
            if inner[0] < 1:
                self._grow(int(offsets[1]))
        lengths[state[0]] = length[0]
        state[:] = state[0] + 1, inner[1], inner[2]

    def _grow(self, text_bytes: int) -> None:
        """Double the room for words, and make it large enough for any text of this size."""
        if text_bytes > len(self._found.keys):
            self._found = FoundWords.of_text_bytes(text_bytes)
        old = self._table
        size = max(2 * len(old.slots), 1 << (2 * text_bytes).bit_length())
        ends = np.concatenate([old.ends, np.zeros(size // 2 + 1 - len(old.ends), np.int64)])
        pool = np.concatenate([old.pool, np.zeros(max(len(old.pool), 2 * text_bytes + 8), np.uint8)])
        self._table = WordTable.of_slots(np.zeros((size, 2), np.uint64), pool, ends)
        _rehash(old.slots, self._table)


def as_strings(texts: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return texts, a list of str and None or an Arrow string array, as one Arrow string array.

    Chunks are joined with 64-bit offsets, because 32-bit offsets limit a string array to 2 GiB.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.chunk(0) if texts.num_chunks == 1 else texts.cast(pa.large_string()).combine_chunks()
    if not isinstance(texts, pa.Array):
        texts = pa.array(list(texts), pa.large_string())
    plain = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    return texts if plain else texts.cast(pa.large_string())


def _buffers(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of an Arrow string array and its int64 offsets, without copying the bytes."""
    texts.validate(full=True)
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    if texts.null_count:
        texts = texts.fill_null("")
    large = pa.types.is_large_string(texts.type)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32)
    ends = ends[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), ends


@compiled
def _read(data, offsets, lower, found, table, out, state):
    """Read texts from state[0] on; return True at a capital with a context, False at the end or a full table.

    data: uint8 (bytes,). offsets: int64 (texts + 1,). lower: `lower_case_table()`. found: FoundWords. table: WordTable.
    out: the tokens' numbers, int32 (tokens,), and the texts' lengths, int64 (texts,). state: int64 (3,), the next text
    and the tokens and words so far.
    """
    tokens, lengths = out
    at, words = state[1], state[2]
    for text in range(state[0], len(offsets) - 1):
        size = offsets[text + 1] - offsets[text]
        full = table.ends[words] + 2 * size + 8 > len(table.pool) or words + size // 2 + 1 > len(table.slots) // 2
        if full or size > len(found.keys):
            state[0], state[1], state[2] = text, at, words
            return False
        count = find_words(data, np.uint64(offsets[text]), np.uint64(offsets[text + 1]), lower, found)
        if count == CONTEXT:
            state[0], state[1], state[2] = text, at, words
            return True
        for n in range(count):
            prefetch(table.slots, np.uint64(2) * ((found.keys[n] * KNUTH) >> table.shift))
        words = _number(found, table, words, tokens[at : at + count])
        at += count
        lengths[text] = count
    state[0], state[1], state[2] = len(offsets) - 1, at, words
    return False


@compiled
def _number(found, table, words, tokens):
    """Look up a text's words and add new ones to the WordTable; return its new number of words.

    found: FoundWords. tokens: int32 (words of the text,), out. words: number of words in the table so far.
    """
    keys, sizes, letters = found
    slots, shift, pool, ends = table
    mask, used, spelled = np.uint64(len(slots) - 1), ends[words], 0
    for n in range(len(tokens)):
        key, size = keys[n], sizes[n]
        slot = (key * KNUTH) >> shift
        while True:
            word = np.int64(slots[slot, 1]) - 1
            if word < 0:
                slots[slot, 0], slots[slot, 1] = key, np.uint64(words + 1)
                word = words
                words += 1
                if size <= 8:
                    store_8_bytes(pool, used, key)
                else:
                    for j in range(size):
                        pool[used + j] = letters[spelled + j]
                used += size
                ends[words] = used
                break
            if slots[slot, 0] == key and (size <= 8 or _same(pool, ends[word], ends[word + 1], letters, spelled, size)):
                break
            slot = (slot + np.uint64(1)) & mask
        tokens[n] = word
        spelled += size if size > 8 else 0
    return words


@compiled
def _same(pool, start, end, letters, other, size):
    """Return whether pool[start:end] equals letters[other:other + size], both uint8 and of more than 8 bytes.

    They are compared eight bytes at a time; the last eight may overlap those before.
    """
    if end - start != size:
        return False
    for i in range(0, size - 8, 8):
        if load_8_bytes(pool, start + i) != load_8_bytes(letters, other + i):
            return False
    return load_8_bytes(pool, end - 8) == load_8_bytes(letters, other + size - 8)


@compiled
def _rehash(old, table):
    """Copy the words of old slots, uint64 (slots, 2), into an empty WordTable."""
    slots, mask = table.slots, np.uint64(len(table.slots) - 1)
    for i in range(len(old)):
        if old[i, 1]:
            slot = (old[i, 0] * KNUTH) >> table.shift
            while slots[slot, 1]:
                slot = (slot + np.uint64(1)) & mask
            slots[slot, 0], slots[slot, 1] = old[i, 0], old[i, 1]
