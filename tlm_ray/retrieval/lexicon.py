"""Text to numbered words in one compiled pass over Arrow's buffers: no Python object a token.

The words are those that `re.findall(r"\\w+", text.lower())` finds: each code point is looked up in a table that
Python's own `str.lower` and `\\w` filled. The two capitals whose lower case is not one code point of its own, the Greek
sigma (final or not) and the Turkish dotted I, send their passage through `str.lower` first.

A text is read twice: first all its words are found and their places in the hash table prefetched, then each is looked
up. A word of up to 8 bytes is its own key there; a longer one is compared whole where its hash matches, so no two words
are ever taken for one.
"""

import re
from functools import cache

import numpy as np
import pyarrow as pa
from numba import njit

from tlm_ray.retrieval.machine import load_8_bytes, lowest_bit, prefetch, store_8_bytes

KNUTH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads keys over the high bits
CONTEXT = -1  # in the table: the lower case depends on neighbours or is longer than one code point


class Lexicon:
    """Numbers distinct words in order of appearance; grows as it reads."""

    def __init__(self) -> None:
        self._slots = np.zeros((1 << 15, 2), np.uint64)  # key, word number + 1
        self._bytes = np.zeros(1 << 18, np.uint8)
        self._ends = np.zeros((1 << 14) + 1, np.int64)  # word w is _bytes[_ends[w]:_ends[w + 1]]
        self._size = 0
        self._tokens = np.zeros(0, np.int32)
        self._found = _room_to_find(1 << 15)

    def __len__(self) -> int:
        return self._size

    def read(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the word numbers of all texts, int32, and how many each text has, int64 (len(texts),).

        texts: an Arrow string array; a null has no words. The numbers are overwritten by the next call, because fresh
        memory would cost a third of the time. ValueError if it is not valid UTF-8.
        """
        data, offsets = _buffers(texts)
        most = int(offsets[-1] - offsets[0]) // 2 + len(texts)
        if len(self._tokens) < most:
            self._tokens = np.empty(most, np.int32)
        tokens = self._tokens
        lengths = np.zeros(len(texts), np.int64)
        state = np.array([0, 0, self._size], np.int64)  # next text, tokens so far, words so far
        while state[0] < len(texts):
            stopped_for_context = _read(data, offsets, _table(), self._room(), tokens, lengths, state)
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
            _read(data, offsets, _table(), self._room(), tokens, length, inner)
            if inner[0] < 1:
                self._grow(int(offsets[1]))
        lengths[state[0]] = length[0]
        state[:] = state[0] + 1, inner[1], inner[2]

    def _grow(self, text_bytes: int) -> None:
        """Make room for twice the words, and for all words that a text of this size can hold."""
        if text_bytes > len(self._found[0]):
            self._found = _room_to_find(text_bytes)
        size = max(2 * len(self._slots), 1 << (2 * text_bytes).bit_length())
        slots = np.zeros((size, 2), np.uint64)
        _rehash(self._slots, slots)
        self._slots = slots
        self._ends = np.concatenate([self._ends, np.zeros(size // 2 + 1 - len(self._ends), np.int64)])
        more = max(len(self._bytes), 2 * text_bytes + 8)
        self._bytes = np.concatenate([self._bytes, np.zeros(more, np.uint8)])


def _room_to_find(text_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrays for one text's words: key, bytes, and the letters of the long ones, which lower case may double."""
    return np.empty(text_bytes, np.uint64), np.empty(text_bytes, np.int64), np.empty(2 * text_bytes + 16, np.uint8)


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


@cache
def _table() -> np.ndarray:
    """For each code point: its lower case if that is a word character, 0 if not, CONTEXT if it is not one to one."""
    points = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x110000)])  # all but the surrogates
    text = points.astype("<u4").tobytes().decode("utf-32-le")
    apart = " ".join(text.replace("İ", "I"))  # a space on both sides: no sigma is final
    lowered = np.frombuffer(apart.lower().encode("utf-32-le"), np.uint32)[::2]
    assert len(lowered) == len(points), "this Python's Unicode has another capital of two lower-case code points"
    is_word = np.zeros(0x110000, np.bool_)
    is_word[np.frombuffer("".join(re.findall(r"\w", text)).encode("utf-32-le"), np.uint32)] = True
    table = np.zeros(0x110000, np.int32)
    table[points] = np.where(is_word[lowered], lowered, 0)
    table[[ord("İ"), ord("Σ")]] = CONTEXT
    return table


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
        count = _find(data, np.uint64(offsets[text]), np.uint64(offsets[text + 1]), table, keys, sizes, letters)
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
def _find(data, i, end, table, keys, sizes, letters):
    """Find a text's words, lower-cased: their keys, their sizes, and the letters of those of more than 8 bytes one
    behind the other; return how many there are, or CONTEXT."""
    count = used = np.int64(0)
    safe = np.uint64(max(0, len(data) - 8))  # 8 bytes can be loaded up to here
    while i < end:
        key, bits, is_plain = np.uint64(0), np.uint64(0), False
        if i <= safe:
            key, bits, is_plain = _classify(_load(data, i, end))
        if is_plain and bits < 64:
            size = np.int64(bits >> np.uint64(3))
            i += np.uint64(size + 1)
        else:
            start, size = i, np.int64(0)
            while is_plain and bits == 64:
                store_8_bytes(letters, used + size, key)
                size += 8
                i += np.uint64(8)
                is_plain = i <= safe
                if is_plain:
                    key, bits, is_plain = _classify(_load(data, i, end))
            if is_plain:
                store_8_bytes(letters, used + size, key)
                size += np.int64(bits >> np.uint64(3))
                i += (bits >> np.uint64(3)) + np.uint64(1)
            else:
                i, size = _spell(data, start, end, table, letters, used)
                if size == CONTEXT:
                    return CONTEXT
            if size > 8:
                key = _hash(letters, used, size)
                used += size
            else:
                key = _pack(letters, used, size)
        keys[count], sizes[count] = key, size
        count += size > 0
    return count


@njit(nogil=True, cache=True)
def _load(data, i, end):
    """Return 8 bytes, zeros behind the text's end."""
    eight = load_8_bytes(data, i)
    return eight if end - i >= 8 else eight & ((np.uint64(1) << (np.uint64(8) * (end - i))) - np.uint64(1))


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


HIGH = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)


@njit(nogil=True, cache=True)
def _from(eight, byte):
    """Set the high bit of each of eight ASCII bytes that is `byte` or more."""
    return eight + ONES * np.uint64(0x80 - byte)


@njit(nogil=True, cache=True)
def _classify(eight):
    """Read the ASCII word at the front of 8 bytes: itself, lower-cased, its bits, and False if the byte behind it is no
    ASCII. All eight are classified at once: the end of a loop is a guess of the processor's that often fails."""
    ascii_only = eight & ~HIGH
    capital = _from(ascii_only, 0x41) & ~_from(ascii_only, 0x5B)
    small = _from(ascii_only, 0x61) & ~_from(ascii_only, 0x7B)
    digit = _from(ascii_only, 0x30) & ~_from(ascii_only, 0x3A)
    low_line = _from(ascii_only, 0x5F) & ~_from(ascii_only, 0x60)
    behind = (~(capital | small | digit | low_line) | eight) & HIGH
    lowered = eight | (capital & HIGH) >> np.uint64(2)
    if behind == 0:
        return lowered, np.uint64(64), True
    place = lowest_bit(behind)  # of a high bit
    bits = place - np.uint64(7)
    return lowered & ((np.uint64(1) << bits) - np.uint64(1)), bits, (eight >> place) & np.uint64(1) == 0


@njit(nogil=True, cache=True)
def _spell(data, i, end, table, pool, used):
    """Write the word of any kind that starts at i to pool[used:], lower-cased; return the place behind it and its size,
    0 if there is none, CONTEXT if Python must lower-case it."""
    size = 0
    while i < end:
        code, step = np.int64(data[i]), 1
        if code >= 0x80:
            code, step = _decode(data, np.int64(i))
        point = np.int64(table[code])
        if point == CONTEXT:
            return i, CONTEXT
        if point == 0:
            return (i if size else i + np.uint64(step)), size
        if point < 0x80:
            pool[used + size] = point
            size += 1
        else:
            size = _encode(point, pool, used, size)
        i += np.uint64(step)
    return i, size


@njit(nogil=True, cache=True)
def _decode(data, i):
    """Return the code point of the UTF-8 sequence at i and its bytes."""
    a, b = np.int64(data[i]), np.int64(data[i + 1]) & 0x3F
    if a < 0xE0:
        return (a & 0x1F) << 6 | b, 2
    c = np.int64(data[i + 2]) & 0x3F
    if a < 0xF0:
        return (a & 0xF) << 12 | b << 6 | c, 3
    return (a & 7) << 18 | b << 12 | c << 6 | (np.int64(data[i + 3]) & 0x3F), 4


@njit(nogil=True, cache=True)
def _encode(point, pool, used, size):
    """Append a code point above 127 to the word at pool[used:] as UTF-8; return the word's new size."""
    p = used + size
    if point < 0x800:
        pool[p], pool[p + 1] = 0xC0 | point >> 6, 0x80 | point & 0x3F
        return size + 2
    if point < 0x10000:
        pool[p], pool[p + 1], pool[p + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
        return size + 3
    pool[p], pool[p + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F
    pool[p + 2], pool[p + 3] = 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
    return size + 4


@njit(nogil=True, cache=True)
def _pack(letters, start, size):
    """Return up to 8 bytes as one number, the first byte lowest; 8 must be there."""
    eight = load_8_bytes(letters, start)
    return eight if size == 8 else eight & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))


@njit(nogil=True, cache=True)
def _hash(letters, start, size):
    """Hash a word of more than 8 bytes; the top byte 0xFF is in no UTF-8, so the key is no short word's."""
    key = np.uint64(size)
    for i in range(0, size, 8):
        key = (key ^ _pack(letters, start + i, min(8, size - i))) * KNUTH
        key ^= key >> np.uint64(29)
    return key | np.uint64(0xFF) << np.uint64(56)


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
