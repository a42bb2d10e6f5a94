"""Text to numbered words in one compiled pass over Arrow's buffers: no Python object a token.

A text is read twice: first all its words are found (`tlm_ray.retrieval.words`) and their places in the hash table
prefetched, then each is looked up. A word of up to 8 bytes is its own key there; a longer one is compared whole where
its hash matches, so no two words are ever taken for one.
"""

import numpy as np
import pyarrow as pa
from numba import njit

from tlm_ray.retrieval.machine import load_8_bytes, prefetch, store_8_bytes
from tlm_ray.retrieval.words import CONTEXT, KNUTH, find_words, lower_case_table, room_to_find


class Lexicon:
    """Numbers distinct words in order of appearance; grows as it reads."""

    def __init__(self) -> None:
        self._slots = np.zeros((1 << 15, 2), np.uint64)  # key, word number + 1
        self._bytes = np.zeros(1 << 18, np.uint8)
        self._ends = np.zeros((1 << 14) + 1, np.int64)  # word w is _bytes[_ends[w]:_ends[w + 1]]
        self._size = 0
        self._tokens = np.zeros(0, np.int32)
        self._found = room_to_find(1 << 15)

    def __len__(self) -> int:
        return self._size

    def read(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the word numbers of all texts, int32, and how many each text has, int64 (len(texts),).

        texts: an Arrow string array; a null has no words. The numbers are overwritten by the next call. ValueError if
        it is not valid UTF-8.
        """
        data, offsets = _buffers(texts)
        most = int(offsets[-1] - offsets[0]) // 2 + len(texts)
        if len(self._tokens) < most:
            self._tokens = np.empty(most, np.int32)
        tokens = self._tokens
        lengths = np.zeros(len(texts), np.int64)
        state = np.array([0, 0, self._size], np.int64)  # next text, tokens so far, words so far
        while state[0] < len(texts):
            stopped_for_context = _read(data, offsets, lower_case_table(), self._room(), tokens, lengths, state)
            if stopped_for_context:
                self._read_lowered(texts[int(state[0])].as_py(), tokens, lengths, state)
            elif state[0] < len(texts):
                self._grow(int(offsets[state[0] + 1] - offsets[state[0]]))
        self._size = int(state[2])
        return tokens[: state[1]], lengths

    def words(self, start: int = 0) -> pa.Array:
        """Return the words from number `start` on."""
        ends = self._ends[start : self._size + 1].copy()
        data = self._bytes[ends[0] : ends[-1]].copy()
        return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends - ends[0]), pa.py_buffer(data))

    def _room(self) -> tuple[np.ndarray, ...]:
        return self._slots, self._bytes, self._ends, *self._found

    def _read_lowered(self, text: str, tokens: np.ndarray, lengths: np.ndarray, state: np.ndarray) -> None:
        """Read one text that Python has lower-cased: of at most one word for two of its bytes, so `tokens` has room."""
        data, offsets = _buffers(pa.array([text.lower()], pa.large_string()))
        inner = np.array([0, state[1], state[2]], np.int64)
        length = np.zeros(1, np.int64)
        while inner[0] < 1:
            _read(data, offsets, lower_case_table(), self._room(), tokens, length, inner)
            if inner[0] < 1:
                self._grow(int(offsets[1]))
        lengths[state[0]] = length[0]
        state[:] = state[0] + 1, inner[1], inner[2]

    def _grow(self, text_bytes: int) -> None:
        """Make room for twice the words, and for all words that a text of this size can hold."""
        if text_bytes > len(self._found[0]):
            self._found = room_to_find(text_bytes)
        size = max(2 * len(self._slots), 1 << (2 * text_bytes).bit_length())
        slots = np.zeros((size, 2), np.uint64)
        _rehash(self._slots, slots)
        self._slots = slots
        self._ends = np.concatenate([self._ends, np.zeros(size // 2 + 1 - len(self._ends), np.int64)])
        more = max(len(self._bytes), 2 * text_bytes + 8)
        self._bytes = np.concatenate([self._bytes, np.zeros(more, np.uint8)])


def as_strings(texts) -> pa.Array:
    """Return texts, a list of str and None or an Arrow string array, as one Arrow string array."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks() if texts.num_chunks != 1 else texts.chunk(0)
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


@njit(nogil=True, cache=True)
def _read(data, offsets, table, room, tokens, lengths, state):
    """Read texts from number state[0] on until the end, a full table (False) or a capital with a context (True)."""
    slots, pool, ends, keys, sizes, letters = room
    at, words = state[1], state[2]
    shift = _shift(len(slots))
    for text in range(state[0], len(offsets) - 1):
        size = offsets[text + 1] - offsets[text]
        short_of_room = ends[words] + 2 * size + 8 > len(pool) or words + size // 2 + 1 > len(slots) // 2
        if short_of_room or size > len(keys):
            state[0], state[1], state[2] = text, at, words
            return False
        count = find_words(data, np.uint64(offsets[text]), np.uint64(offsets[text + 1]), table, keys, sizes, letters)
        if count == CONTEXT:
            state[0], state[1], state[2] = text, at, words
            return True
        for n in range(count):
            prefetch(slots, np.uint64(2) * ((keys[n] * KNUTH) >> shift))
        words = _number(keys, sizes, letters, count, slots, shift, pool, ends, words, tokens, at)
        at += count
        lengths[text] = count
    state[0], state[1], state[2] = len(offsets) - 1, at, words
    return False


@njit(nogil=True, cache=True)
def _number(keys, sizes, letters, count, slots, shift, pool, ends, words, tokens, at):
    """Write the numbers of a text's words to tokens, new ones to the table too; return how many words there are now."""
    mask, used, spelled = np.uint64(len(slots) - 1), ends[words], 0
    for n in range(count):
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
        tokens[at + n] = word
        spelled += size if size > 8 else 0
    return words


@njit(nogil=True, cache=True)
def _same(pool, start, end, letters, other, size):
    """Compare two words of more than 8 bytes, eight at a time, the last eight whatever the size."""
    if end - start != size:
        return False
    for i in range(0, size - 8, 8):
        if load_8_bytes(pool, start + i) != load_8_bytes(letters, other + i):
            return False
    return load_8_bytes(pool, end - 8) == load_8_bytes(letters, other + size - 8)


@njit(nogil=True, cache=True)
def _shift(slots):
    """Return the shift that leaves as many high bits as a power of two of slots has numbers."""
    bits = 0
    while 1 << bits < slots:
        bits += 1
    return np.uint64(64 - bits)


@njit(nogil=True, cache=True)
def _rehash(old, new):
    mask, shift = np.uint64(len(new) - 1), _shift(len(new))
    for i in range(len(old)):
        if old[i, 1]:
            slot = (old[i, 0] * KNUTH) >> shift
            while new[slot, 1]:
                slot = (slot + np.uint64(1)) & mask
            new[slot, 0], new[slot, 1] = old[i, 0], old[i, 1]
