"""Scripts without spaces between words: Han, Kana, Thai, Lao, Khmer, Myanmar, Tai.

Their terms are pairs of neighbouring characters, or a single character on its own, as in Lucene's CJKBigramFilter. With
a whole clause as one term, a query that is part of a passage would not match it.
"""

import unicodedata
from functools import cache

import numpy as np

BLOCKS = (  # first and last code points; those of South East Asia have Unicode's line-breaking class SA
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF)),
    *((0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)),
    *((0xA9E0, 0xA9FF), (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF)),
)


@cache
def unspaced_points() -> np.ndarray:
    """Return the code points of these scripts' letters, marks and digits, int64 ascending."""
    points = np.concatenate([np.arange(first, last + 1) for first, last in BLOCKS])
    return points[[unicodedata.category(chr(point))[0] in "LMN" for point in points]]


@cache
def unspaced_class() -> str:
    """Return these code points as ranges for a regular expression's [...]."""
    points = unspaced_points()
    firsts = np.flatnonzero(np.diff(points, prepend=-2) > 1)
    lasts = np.append(firsts[1:], len(points)) - 1
    return "".join(f"{chr(points[first])}-{chr(points[last])}" for first, last in zip(firsts, lasts, strict=True))
