"""Near-duplicates: pages with a similar set of word 5-grams, found by MinHash and banding (Broder 1997), by datasketch.

A page's signature is cut into b bands of r numbers. Two pages of similarity s have an equal band, and so become one
group, with the probability 1 - (1 - s^r)^b; b and r are datasketch's for the similarity that is asked for.
"""

import hashlib
from functools import cache
from typing import Any

import numpy as np

WORDS = 5  # per n-gram
PERMUTATIONS = 128
KEY_BYTES = 16


def band_keys(page: str, near: float) -> list[bytes]:
    """Return the key of each band of a page's signature; a page without words has none."""
    words = page.lower().split()
    if not words:
        return []
    grams = {" ".join(words[i : i + WORDS]).encode() for i in range(max(1, len(words) - WORDS + 1))}
    bands, rows = bands_of(near)
    signature = _empty().copy()
    signature.update_batch(sorted(grams))
    cut = np.asarray(signature.hashvalues[: bands * rows], "<u8").reshape(bands, rows)
    keys = (number.to_bytes(2) + band.tobytes() for number, band in enumerate(cut))
    return [hashlib.blake2b(key, digest_size=KEY_BYTES).digest() for key in keys]


@cache
def bands_of(near: float) -> tuple[int, int]:
    """Return the number of bands and the numbers per band."""
    _check_installed()
    from datasketch import MinHashLSH

    found = MinHashLSH(threshold=near, num_perm=PERMUTATIONS)
    return found.b, found.r


@cache
def _empty() -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=PERMUTATIONS, seed=1)


def _check_installed() -> None:
    try:
        import datasketch  # noqa: F401
    except ImportError as error:
        raise ValueError("cleaning near: needs datasketch, on every node; pip install 'tlm_ray[cleaning]'") from error


def later_of_groups(pairs: np.ndarray) -> np.ndarray:
    """Return the pages of each connected group but its first, sorted.

    pairs: int64 (pairs, 2), numbers of pages that are nearly equal.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    named, places = np.unique(pairs, return_inverse=True)
    links = places.reshape(pairs.shape)
    graph = coo_array((np.ones(len(links), bool), (links[:, 0], links[:, 1])), shape=(len(named), len(named)))
    _, groups = connected_components(graph, directed=False)
    _, firsts = np.unique(groups, return_index=True)  # `named` is sorted: the first of a group is the earliest page
    return np.delete(named, firsts)
