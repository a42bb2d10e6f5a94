"""The words of a text, found eight bytes at a time: runs of `\\w`, lower-cased; in scripts without spaces every two
neighbours.

Each code point is looked up in a table that Python's own `str.lower` and `\\w` filled. Two capitals have no lower case
of one code point of their own, the Greek sigma (final or not) and the Turkish dotted I: a text with one is refused, and
read again after `str.lower`.

Arguments of the kernels: data, uint8 (bytes,), is UTF-8 text; places and ends in it are uint64. lower, int32
(0x110000,), is `lower_case_table()`. letters and pool, uint8 (bytes,), hold words one behind the other.
"""

import re
from functools import cache
from typing import NamedTuple

import numpy as np

from tlm_ray.retrieval.engine.compiling import compiled
from tlm_ray.retrieval.engine.machine import load_8_bytes, lowest_bit, store_8_bytes
from tlm_ray.retrieval.engine.scripts import unspaced_points

KNUTH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads keys over the high bits
CONTEXT = -1  # in the table: the lower case depends on neighbours or is longer than one code point
UNSPACED = 1 << 24  # in the table: added to a character of a script without spaces
HIGH = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)


class FoundWords(NamedTuple):
    """The words of one text; made once and written over for each text."""

    keys: np.ndarray
    """uint64 (words,): the bytes of a word of up to 8, the first lowest, or the hash of a longer one"""
    sizes: np.ndarray
    """int64 (words,): bytes of each word"""
    letters: np.ndarray
    """uint8 (bytes,): the words of more than 8 bytes, one behind the other"""

    @classmethod
    def of_text_bytes(cls, size: int) -> "FoundWords":
        """Make room for the words of any text of so many bytes; lower case may double them."""
        return cls(np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(2 * size + 16, np.uint8))


@cache
def lower_case_table() -> np.ndarray:
    """For each code point: its lower case if that is a word character, 0 if not, CONTEXT if it is not one to one.

    UNSPACED is added in scripts without spaces, whose marks are word characters, too.
    """
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
    table[unspaced_points()] = unspaced_points() + UNSPACED
    return table


@compiled
def find_words(data, i, end, lower, found):
    """Find the words of the text data[i:end], lower-cased, and write them to found, a FoundWords; return how many there
    are, int64, or CONTEXT."""
    keys, sizes, letters = found
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
                i, size = _spell(data, start, end, lower, letters, used)
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


@compiled
def _load(data, i, end):
    """Return data[i:i + 8] as a uint64, the first byte lowest, with zeros from the text's end on."""
    eight = load_8_bytes(data, i)
    return eight if end - i >= 8 else eight & ((np.uint64(1) << (np.uint64(8) * (end - i))) - np.uint64(1))


@compiled
def _from(eight, byte):
    """Set the high bit of each of eight ASCII bytes, a uint64, that is `byte` or more; the other bits are noise."""
    return eight + ONES * np.uint64(0x80 - byte)


@compiled
def _classify(eight):
    """Read the ASCII word at the front of 8 bytes, a uint64: return it lower-cased, uint64, its bits, uint64 (64 if all
    eight bytes belong to it), and False if the byte behind it is not ASCII.

    All eight are classified at once, because the processor often mispredicts the end of a loop over them.
    """
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


@compiled
def _spell(data, i, end, lower, pool, used):
    """Write the word of any characters that starts at i to pool[used:], lower-cased; return the place behind it,
    uint64, and its bytes, int64: 0 if no word starts there, CONTEXT if Python must lower-case the text."""
    size = 0
    while i < end:
        code, step = np.int64(data[i]), 1
        if code >= 0x80:
            code, step = _decode(data, np.int64(i))
        point = np.int64(lower[code])
        if point == CONTEXT:
            return i, CONTEXT
        if point == 0:
            return (i if size else i + np.uint64(step)), size
        if point >= UNSPACED:
            return (i, size) if size else _pair(data, i, end, lower, pool, used)
        if point < 0x80:
            pool[used + size] = point
            size += 1
        else:
            size = _encode(point, pool, used, size)
        i += np.uint64(step)
    return i, size


@compiled
def _pair(data, i, end, lower, pool, used):
    """Write the character at i of a script without spaces, and such a one behind it, to pool[used:]; return the place
    of the next word or pair, uint64, and the bytes, int64. A pair's second is the next's first until a run's end."""
    size = 0
    for _ in range(2):
        code, step = _decode(data, np.int64(i))
        size = _encode(code, pool, used, size)
        before, i = i, i + np.uint64(step)
        if not _is_unspaced(data, i, end, lower):
            return i, size
    return before, size


@compiled
def _is_unspaced(data, i, end, lower):
    """Say whether a character of a script without spaces is at i."""
    return i < end and data[i] >= 0x80 and lower[_decode(data, np.int64(i))[0]] >= UNSPACED


@compiled
def _decode(data, i):
    """Return the code point of the UTF-8 sequence of two bytes or more at i, int64, and how many bytes it has."""
    a, b = np.int64(data[i]), np.int64(data[i + 1]) & 0x3F
    if a < 0xE0:
        return (a & 0x1F) << 6 | b, 2
    c = np.int64(data[i + 2]) & 0x3F
    if a < 0xF0:
        return (a & 0xF) << 12 | b << 6 | c, 3
    return (a & 7) << 18 | b << 12 | c << 6 | (np.int64(data[i + 3]) & 0x3F), 4


@compiled
def _encode(point, pool, used, size):
    """Append a code point above 127 to the word of `size` bytes at pool[used:], as UTF-8; return its new size."""
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


@compiled
def _pack(letters, start, size):
    """Return letters[start:start + size], up to 8 bytes, as a uint64, the first byte lowest; 8 must be there."""
    eight = load_8_bytes(letters, start)
    return eight if size == 8 else eight & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))


@compiled
def _hash(letters, start, size):
    """Hash letters[start:start + size], a word of more than 8 bytes, to a uint64; its top byte 0xFF is in no UTF-8, so
    that it is never the key of a short word."""
    key = np.uint64(size)
    for i in range(0, size, 8):
        key = (key ^ _pack(letters, start + i, min(8, size - i))) * KNUTH
        key ^= key >> np.uint64(29)
    return key | np.uint64(0xFF) << np.uint64(56)
