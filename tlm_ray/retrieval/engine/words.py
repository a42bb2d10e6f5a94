"""Find the lower-cased words of a text, eight bytes at a time; in scripts without spaces, pairs of characters.

Each code point is looked up in a table made by Python's `str.lower` and `\\w`. Two capitals have no fixed lower case of
one code point: the Greek sigma (final or not) and the Turkish dotted I. A text with one is read again after
`str.lower`.

Arguments of the kernels: data, uint8 (bytes,), is UTF-8 text; places and ends in it are uint64. lower, int32
(0x110000,), is `lower_case_table()`. letters and pool, uint8 (bytes,), hold concatenated words.
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
UNSPACED = 1 << 24  # in the table: added to characters of scripts without spaces
HIGH = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)


class FoundWords(NamedTuple):
    """The words of one text; allocated once and overwritten by each text."""

    keys: np.ndarray
    """uint64 (words,): the bytes of a word of up to 8, little-endian, or the hash of a longer one"""
    sizes: np.ndarray
    """int64 (words,): length of each word in bytes"""
    letters: np.ndarray
    """uint8 (bytes,): the words of more than 8 bytes, concatenated"""

    @classmethod
    def of_text_bytes(cls, size: int) -> "FoundWords":
        """Allocate room for the words of any text of so many bytes, which lower-casing may double."""
        return cls(np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(2 * size + 16, np.uint8))


@cache
def lower_case_table() -> np.ndarray:
    """Return a table from code points to lower case: 0 if no word character, CONTEXT if not one to one.

    UNSPACED is added for scripts without spaces, whose marks are word characters too.
    """
    points = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x110000)])  # all but the surrogates
    text = points.astype("<u4").tobytes().decode("utf-32-le")
    apart = " ".join(text.replace("İ", "I"))  # with spaces on both sides, no sigma is final
    lowered = np.frombuffer(apart.lower().encode("utf-32-le"), np.uint32)[::2]
    assert len(lowered) == len(points), "this Python's Unicode has a further capital with two lower-case code points"
    is_word = np.zeros(0x110000, np.bool_)
    is_word[np.frombuffer("".join(re.findall(r"\w", text)).encode("utf-32-le"), np.uint32)] = True
    table = np.zeros(0x110000, np.int32)
    table[points] = np.where(is_word[lowered], lowered, 0)
    table[[ord("İ"), ord("Σ")]] = CONTEXT
    table[unspaced_points()] = unspaced_points() + UNSPACED
    return table


@compiled
def find_words(data, i, end, lower, found):
    """Write the lower-cased words of data[i:end] to found, a FoundWords; return their number, int64, or CONTEXT."""
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
    """Return data[i:i + 8] as a little-endian uint64, with zeros beyond the text's end."""
    eight = load_8_bytes(data, i)
    return eight if end - i >= 8 else eight & ((np.uint64(1) << (np.uint64(8) * (end - i))) - np.uint64(1))


@compiled
def _from(eight, byte):
    """Set the high bit of each of eight ASCII bytes (a uint64) that is at least `byte`; other bits are undefined."""
    return eight + ONES * np.uint64(0x80 - byte)


@compiled
def _classify(eight):
    """Read the ASCII word at the start of 8 bytes (a uint64).

    Return the lower-cased word, uint64, and its number of bits, uint64; 64 if all eight bytes belong to it. The third
    result is False if the next byte is not ASCII.

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
    place = lowest_bit(behind)  # position of a high bit
    bits = place - np.uint64(7)
    return lowered & ((np.uint64(1) << bits) - np.uint64(1)), bits, (eight >> place) & np.uint64(1) == 0


@compiled
def _spell(data, i, end, lower, pool, used):
    """Write the lower-cased word that starts at i, of any characters, to pool[used:].

    Return the index after it, uint64, and its length in bytes, int64: 0 if no word starts there, CONTEXT if Python must
    lower-case the text.
    """
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
    """Write the pair of characters at i, of a script without spaces, to pool[used:].

    Return the index of the next word or pair, uint64, and the number of bytes, int64. Pairs overlap by one character.
    """
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
    """Return whether the character at i belongs to a script without spaces."""
    return i < end and data[i] >= 0x80 and lower[_decode(data, np.int64(i))[0]] >= UNSPACED


@compiled
def _decode(data, i):
    """Decode the UTF-8 sequence of two bytes or more at i; return the code point, int64, and its number of bytes."""
    a, b = np.int64(data[i]), np.int64(data[i + 1]) & 0x3F
    if a < 0xE0:
        return (a & 0x1F) << 6 | b, 2
    c = np.int64(data[i + 2]) & 0x3F
    if a < 0xF0:
        return (a & 0xF) << 12 | b << 6 | c, 3
    return (a & 7) << 18 | b << 12 | c << 6 | (np.int64(data[i + 3]) & 0x3F), 4


@compiled
def _encode(point, pool, used, size):
    """Append a code point above 127, as UTF-8, to the word of `size` bytes at pool[used:]; return the new size."""
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
    """Return letters[start:start + size], up to 8 bytes, as a little-endian uint64; 8 bytes must be readable."""
    eight = load_8_bytes(letters, start)
    return eight if size == 8 else eight & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))


@compiled
def _hash(letters, start, size):
    """Hash letters[start:start + size], a word of more than 8 bytes, to a uint64.

    Its top byte is 0xFF, which never occurs in UTF-8, so it is never the key of a short word.
    """
    key = np.uint64(size)
    for i in range(0, size, 8):
        key = (key ^ _pack(letters, start + i, min(8, size - i))) * KNUTH
        key ^= key >> np.uint64(29)
    return key | np.uint64(0xFF) << np.uint64(56)
