"""Divide a corpus into portions, one per Ray task: some small files, a large file or a range of its lines.

Portions depend on the files alone, so parts and ids are the same for any number of workers. A hash of the name decides
whether a new portion starts at a small file, about once in `MARK_BYTES`. So an added or removed file changes only its
own portion and maybe the next (content-defined chunking).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tlm_ray.corpus.general.documents import can_be_cut, is_packed
from tlm_ray.corpus.general.manifest import CorpusFile

TOGETHER_BYTES = 8_000_000  # bytes of small files per portion, which are in memory together
MARK_BYTES = 4_000_000  # mean bytes of small files between two forced starts of a portion
KEY_BYTES = 16
PACKED_BYTES = 10  # bytes of text assumed per byte of a compressed file
CUT_BYTES = 32_000_000  # bytes of a large file per portion


@dataclass(frozen=True)
class Range:
    """A file, or its rows that begin within a range of bytes."""

    file: CorpusFile
    bounds: tuple[int, int] | None = None
    """first byte and end (exclusive); None for the whole file"""


def portions_of(files: Sequence[CorpusFile]) -> list[list[Range]]:
    """Group small files and cut large ones, in order."""
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
    """Return 16 bytes of a sha256 that identifies a range's passages: of the file and how it is cut."""
    decides = [one.file.name, one.file.digest, one.bounds, dict(options)]
    return hashlib.sha256(json.dumps(decides).encode()).digest()[:KEY_BYTES]


def _is_marked(file: CorpusFile, size: int) -> bool:
    """Return whether a portion starts at a file, by a hash of its name; the larger the file, the likelier."""
    drawn = int.from_bytes(hashlib.blake2b(file.name.encode(), digest_size=8).digest()) / 2**64
    return drawn * MARK_BYTES < size


def _ranges(file: CorpusFile) -> list[Range]:
    count = -(-file.size // CUT_BYTES) if can_be_cut(file.uri) else 1
    if count == 1:
        return [Range(file)]
    bounds = [file.size * i // count for i in range(count + 1)]
    return [Range(file, both) for both in pairwise(bounds)]
