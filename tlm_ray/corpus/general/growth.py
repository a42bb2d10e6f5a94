"""Map the passages of a corpus to those of a larger one that contains all its files in the same order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import storage
from tlm_ray.corpus.general.passages import RANGES


@dataclass(frozen=True)
class Growth:
    """The positions of a corpus' passages in a larger corpus that has all its files, or ranges of files."""

    starts: np.ndarray
    """int64 (ranges + 1,): the first id of each range in the smaller corpus, then its number of passages"""
    places: np.ndarray
    """int64 (ranges,): the first id of the same ranges in the larger one"""
    passages: int
    """passages of the larger corpus"""

    @classmethod
    def between(cls, small: pa.Table, large: pa.Table) -> "Growth | None":
        """Compare two corpora by their lists of ranges; None if the larger one lacks a range or changes their order."""
        starts, firsts = (np.append(0, np.cumsum(ranges["passages"].to_numpy())) for ranges in (small, large))
        found = pc.index_in(small["key"], value_set=large["key"].combine_chunks()).fill_null(-1).to_numpy()
        if (found < 0).any() or (np.diff(found) < 0).any():
            return None
        return cls(starts, firsts[:-1][found], int(firsts[-1]))

    def moved(self, ids: np.ndarray) -> np.ndarray:
        """Map ids of the smaller corpus to ids of the larger one, int64."""
        part = np.searchsorted(self.starts, ids, "right") - 1
        return ids - self.starts[part] + self.places[part]

    @property
    def old(self) -> np.ndarray:
        """The smaller corpus' id ranges in the larger one: int64 (ranges, 2), start and stop, in order."""
        return np.stack([self.places, self.places + np.diff(self.starts)], axis=1)

    @property
    def new(self) -> np.ndarray:
        """The id ranges of passages that the smaller corpus lacks: int64 (ranges, 2), in order, none empty."""
        between = np.stack([np.append(0, self.old[:, 1]), np.append(self.places, self.passages)], axis=1)
        return between[between[:, 0] < between[:, 1]]


def largest_within(passages: str, earlier: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], Growth] | None:
    """Return the earlier result whose corpus is the largest that this corpus has grown from; None if there is none.

    passages: the folder of the corpus' passages. earlier: the input folders of each result, `passages` among them.
    """
    large = _ranges(passages)
    grown = [(each, Growth.between(_ranges(each["passages"]), large)) for each in earlier]
    found = [(each, growth) for each, growth in grown if growth is not None]
    return max(found, key=lambda pair: int(pair[1].starts[-1]), default=None)


def _ranges(passages: str) -> pa.Table:
    return storage.read_table(storage.join(passages, RANGES))
