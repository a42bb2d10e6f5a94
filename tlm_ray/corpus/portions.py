"""A corpus in portions, one a task: some small files, a large one or a range of its lines.

Portions follow from the files alone, so that the passages' parts and ids are the same for any number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tlm_ray.corpus.documents import can_be_cut, is_packed
from tlm_ray.corpus.manifest import CorpusFile

TOGETHER_BYTES = 8_000_000  # of small files in one portion, which are in memory together
PACKED_BYTES = 10  # that a byte of a packed file may stand for
CUT_BYTES = 32_000_000  # of a large file's lines in one


@dataclass(frozen=True)
class Range:
    """A file, or the rows of it that begin within some of its bytes."""

    file: CorpusFile
    bounds: tuple[int, int] | None = None
    """the first byte and the one behind the last; None for all"""


def portions_of(files: Sequence[CorpusFile]) -> list[list[Range]]:
    """Put files together or cut them, in their order."""
    portions: list[list[Range]] = []
    room = 0
    for file in files:
        ranges, size = _ranges(file), file.size * (PACKED_BYTES if is_packed(file.uri) else 1)
        if len(ranges) == 1 and size <= room:
            portions[-1] += ranges
            room -= size
        else:
            portions += [[one] for one in ranges]
            room = TOGETHER_BYTES - size
    return portions


def _ranges(file: CorpusFile) -> list[Range]:
    count = -(-file.size // CUT_BYTES) if can_be_cut(file.uri) else 1
    if count == 1:
        return [Range(file)]
    bounds = [file.size * i // count for i in range(count + 1)]
    return [Range(file, both) for both in pairwise(bounds)]
