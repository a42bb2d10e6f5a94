"""The words of a text, found eight bytes at a time: those of `re.findall(r"\\w+", text.lower())`.

Each code point is looked up in a table that Python's own `str.lower` and `\\w` filled. Two capitals have no lower case
of one code point of their own, the Greek sigma (final or not) and the Turkish dotted I: a text with one is refused, and
read again after `str.lower`.
"""

import re
from functools import cache

import numpy as np
from numba import njit

from tlm_ray.retrieval.machine import load_8_bytes, lowest_bit, store_8_bytes

KNUTH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads keys over the high bits
CONTEXT = -1  # in the table: the lower case depends on neighbours or is longer than one code point
HIGH = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)


def room_to_find(text_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrays for one text's words: key, bytes, and the letters of the long ones, which lower case may double."""
    return np.empty(text_bytes, np.uint64), np.empty(text_bytes, np.int64), np.empty(2 * text_bytes + 16, np.uint8)


@cache
def lower_case_table() -> np.ndarray:
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
def find_words(data, i, end, table, keys, sizes, letters):
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
