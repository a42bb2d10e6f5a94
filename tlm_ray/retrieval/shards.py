"""Divide a corpus into shards: ranges of passage ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SHARD_PASSAGES = 50_000  # with ten million passages, two workers and 200 shards stayed below 3.2 GiB in total
MOST_PASSAGES = 2**32  # so that an id and a score fit in a key of 64 bits


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Equal ranges of passage ids; an execution setting that never changes results."""

    passages: int
    """number of passages in the corpus"""
    count: int
    """ranges"""

    @classmethod
    def of(cls, passages: int, *, shards: int, workers: int) -> "Shards":
        """Divide into `shards` ranges; 0 means ranges of about 50,000 passages, at least one per worker."""
        if passages >= MOST_PASSAGES:
            raise ValueError(
                f"corpus of {passages:,} passages: at most {MOST_PASSAGES - 1:,} are allowed; search it in two halves"
            )
        count = shards or max(workers, -(-passages // SHARD_PASSAGES))
        return cls(passages=passages, count=max(1, min(count, passages)))

    def items(self) -> list[dict[str, int]]:
        """List the ranges as items for `parallel.each`."""
        return _items(pairwise(self.passages * i // self.count for i in range(self.count + 1)))


def items_within(ranges: Iterable[Sequence[int]]) -> list[dict[str, int]]:
    """Divide non-empty ranges of ids into ranges of at most 50,000; list these as items for `parallel.each`."""
    pieces = ((start, stop, -(-(stop - start) // SHARD_PASSAGES)) for start, stop in ranges)
    return _items(
        both
        for start, stop, count in pieces
        for both in pairwise(start + (stop - start) * i // count for i in range(count + 1))
    )


def _items(ranges: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"shard": i, "start": a, "stop": b, "passages": b - a} for i, (a, b) in enumerate(ranges)]
