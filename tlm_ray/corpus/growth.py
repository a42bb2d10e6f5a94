"""What a corpus has in common with one that it has grown from: whole parts of passages, in the same order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tlm_ray.corpus.passages import PassageStore


@dataclass(frozen=True)
class Growth:
    """Where the passages of a corpus lie in a larger one that has all of its parts."""

    starts: np.ndarray
    """int64 (parts + 1,): the first id of each part of the smaller corpus, and how many passages it has"""
    places: np.ndarray
    """int64 (parts,): the first id of the same parts in the larger one"""
    passages: int
    """of the larger one"""

    @classmethod
    def between(cls, small: PassageStore, large: PassageStore) -> "Growth | None":
        """Compare two corpora; None if the larger one lacks a part of the smaller, or has it in another order."""
        firsts = np.cumsum([0, *(part["passages"] for part in large.parts)])
        place_of = {part["key"]: first for part, first in zip(large.parts, firsts[:-1], strict=True)}
        places = np.array([place_of.get(part["key"], -1) for part in small.parts], np.int64)
        if (places < 0).any() or (np.diff(places) < 0).any():
            return None
        return cls(np.cumsum([0, *(part["passages"] for part in small.parts)]), places, int(firsts[-1]))

    def moved(self, ids: np.ndarray) -> np.ndarray:
        """Return the ids in the larger corpus of passages of the smaller one, int64."""
        part = np.searchsorted(self.starts, ids, "right") - 1
        return ids - self.starts[part] + self.places[part]

    @property
    def old(self) -> np.ndarray:
        """The ranges of ids that the smaller corpus' passages have in the larger: int64 (parts, 2), in order."""
        return np.stack([self.places, self.places + np.diff(self.starts)], axis=1)

    @property
    def new(self) -> np.ndarray:
        """The ranges of ids that no passage of the smaller corpus has: int64 (ranges, 2), in order, none empty."""
        between = np.stack([np.append(0, self.old[:, 1]), np.append(self.places, self.passages)], axis=1)
        return between[between[:, 0] < between[:, 1]]


def largest_within(
    store: PassageStore, earlier: Sequence[Mapping[str, str]]
) -> tuple[Mapping[str, str], Growth] | None:
    """Return which of some results is of the largest corpus that a corpus has grown from; None if none is.

    earlier: of each result the folders that it was made of, of which `passages` is one.
    """
    grown = [(each, Growth.between(PassageStore.open(each["passages"]), store)) for each in earlier]
    found = [(each, growth) for each, growth in grown if growth is not None]
    return max(found, key=lambda pair: int(pair[1].starts[-1]), default=None)
