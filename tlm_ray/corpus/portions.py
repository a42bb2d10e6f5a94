"""A corpus in portions, one a task: some small files, a large one or a range of its lines.

Portions follow from the files alone, so that the passages' parts and ids are the same for any number of workers. Small
files that lie together are divided where their names say so, at a file in `MARK_BYTES`: where a file is added or taken
away, only the portion changes that it is in, and maybe the next (as in content-defined chunking).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tlm_ray.corpus.documents import can_be_cut, is_packed
from tlm_ray.corpus.manifest import CorpusFile

TOGETHER_BYTES = 8_000_000  # of small files in one portion, which are in memory together
MARK_BYTES = 4_000_000  # of small files, at one of which a portion begins whatever lies before it
KEY_BYTES = 16
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
        if len(ranges) == 1 and size <= room and not _is_marked(file, size):
            portions[-1] += ranges
            room -= size
        else:
            portions += [[one] for one in ranges]
            room = TOGETHER_BYTES - size
    return portions


def key_of(one: Range, options: Mapping[str, object]) -> bytes:
    """Return 16 bytes of the sha256 of all that decides a range's passages: the file and how it is cut."""
    decides = [one.file.name, one.file.digest, one.bounds, dict(options)]
    return hashlib.sha256(json.dumps(decides).encode()).digest()[:KEY_BYTES]


def _is_marked(file: CorpusFile, size: int) -> bool:
    """Say whether a portion begins at a file, by its name: the likelier, the larger it is."""
    drawn = int.from_bytes(hashlib.blake2b(file.name.encode(), digest_size=8).digest()) / 2**64
    return drawn * MARK_BYTES < size


def _ranges(file: CorpusFile) -> list[Range]:
    count = -(-file.size // CUT_BYTES) if can_be_cut(file.uri) else 1
    if count == 1:
        return [Range(file)]
    bounds = [file.size * i // count for i in range(count + 1)]
    return [Range(file, both) for both in pairwise(bounds)]
