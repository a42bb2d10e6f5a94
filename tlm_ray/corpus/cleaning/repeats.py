"""Find keys that occur more than once in a corpus, exactly, in tasks of bounded memory.

Each part writes its keys in buckets, one piece per bucket. A task per bucket reads that piece of all parts and sorts
it. Neither the number of buckets nor that of workers changes what is found.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tlm_ray import storage

PART_BITS = 40  # a place is the number of a part, then the number of a page or span in it


def place_of(part: int, number: np.ndarray) -> np.ndarray:
    """Return the places of some pages or spans of a part: int64, in the order of the corpus."""
    return (np.int64(part) << PART_BITS) + number


def numbers_in(part: int, places: np.ndarray) -> np.ndarray:
    """Return the numbers within a part of sorted places of all parts."""
    first, end = np.searchsorted(places, [np.int64(part) << PART_BITS, np.int64(part + 1) << PART_BITS])
    return places[first:end] - (np.int64(part) << PART_BITS)


def write_keys(uri: str, keys: Sequence[bytes], places: np.ndarray, *, buckets: int) -> None:
    """Write keys of 16 bytes with their places, a piece per bucket."""
    halves = np.frombuffer(b"".join(keys), "<u8").reshape(-1, 2)
    bucket = halves[:, 0] % np.uint64(buckets)
    order = np.argsort(bucket, kind="stable")
    bounds = np.searchsorted(bucket[order], np.arange(buckets + 1, dtype=np.uint64))
    pieces = (order[bounds[i] : bounds[i + 1]] for i in range(buckets))
    storage.write_pieces(
        uri,
        (pa.table({"high": halves[own, 0], "low": halves[own, 1], "place": places[own]}) for own in pieces),
    )


def repeats_in(files: Sequence[str], bucket: int) -> np.ndarray:
    """Return the repeats among the keys of one bucket: int64 (repeats, 2), the first place of the key and the later."""
    table = pa.concat_tables([storage.read_piece(file, bucket) for file in files])
    high, low, places = (table[name].to_numpy() for name in ("high", "low", "place"))
    order = np.lexsort((places, low, high))
    high, low, places = high[order], low[order], places[order]
    new = np.ones(len(places), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    firsts = places[np.maximum.accumulate(np.where(new, np.arange(len(places)), 0))]
    return np.stack([firsts, places], axis=1)[~new]
