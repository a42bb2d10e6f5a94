"""The interleave: which rows make the batch of a step, as a pure function of the step.

A cycle is rho1 general batches, then one task batch (released code, section 6.3 of its description); a step is one
optimizer step. Nothing is remembered between steps, so a resumed run, a shifted run and any number of workers see the
same batches.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from tlm_ray.training.blocks import Blocks
from tlm_ray.training.masking import Masking

POOL_BATCHES = 64  # batches whose rows are sorted by length together: padding falls from 40 % to 1 to 3 per cent


@dataclass(frozen=True, eq=False)
class Stream:
    """An endless, shuffled reading of some rows in batches of rows of like length.

    lengths: (rows,) tokens of each row. Each pass over the rows has its own permutation, keyed by
    (seed, kind, pass).
    """

    lengths: np.ndarray
    batch_rows: int
    key: tuple[int, str]

    def rows(self, batch: int) -> np.ndarray:
        """Return the rows of the stream's batch number `batch`, int64 (batch_rows,)."""
        pool, place = divmod(batch, POOL_BATCHES)
        return self._pool(pool)[place]

    @lru_cache(maxsize=2)  # noqa: B019 - the value lives as long as its run
    def _pool(self, pool: int) -> np.ndarray:
        size = POOL_BATCHES * self.batch_rows
        place = np.arange(pool * size, (pool + 1) * size)
        turns, rest = np.divmod(place, len(self.lengths))
        rows = np.concatenate([self._permutation(turn)[rest[turns == turn]] for turn in np.unique(turns)])
        # pass by pass, so that few rows meet themselves in a batch where a pool is more than a pass
        rows = rows[np.lexsort((self.lengths[rows], turns))].reshape(POOL_BATCHES, self.batch_rows)
        return rows[self._generator(1, pool).permutation(POOL_BATCHES)]

    @lru_cache(maxsize=2)  # noqa: B019
    def _permutation(self, turn: int) -> np.ndarray:
        return self._generator(0, turn).permutation(len(self.lengths))

    def _generator(self, purpose: int, number: int) -> np.random.Generator:
        seed, kind = self.key
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, kind == "task", purpose, number])))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One step's rows on one rank, padded.

    tokens, types, attention: int64 (rows, length). targets: the tokens to predict, int64 (masked,), at the flat places
    `masked`; both None without masking. labels: int64 (rows,), None for a general batch. rows, masked_total and
    tokens_total count the whole step over all ranks; real_tokens counts this rank's.
    """

    kind: str
    tokens: np.ndarray
    attention: np.ndarray
    types: np.ndarray | None
    masked: np.ndarray | None
    targets: np.ndarray | None
    labels: np.ndarray | None
    rows: int
    masked_total: int
    tokens_total: int
    real_tokens: int

    def parts(self, rows: int) -> Iterator["Batch"]:
        """Cut into parts of at most `rows` rows, each as wide as its longest; 0 leaves the batch whole.

        What counts the step goes on counting the whole step, so the parts' losses add up to the batch's.
        """
        if not rows or rows >= len(self.tokens):
            yield self
            return
        for start in range(0, len(self.tokens), rows):
            mine = slice(start, start + rows)
            attention = self.attention[mine]
            width = int(attention.sum(axis=1).max())
            part = replace(
                self,
                tokens=self.tokens[mine, :width],
                attention=attention[:, :width],
                types=None if self.types is None else self.types[mine, :width],
                labels=None if self.labels is None else self.labels[mine],
                real_tokens=int(attention.sum()),
            )
            if self.masked is not None and self.targets is not None:
                row, column = np.divmod(self.masked, self.tokens.shape[1])
                own = (start <= row) & (row < start + rows)
                masked = (row[own] - start) * width + column[own]
                part = replace(part, masked=masked, targets=self.targets[own])
            yield part


@dataclass(frozen=True, kw_only=True, eq=False)
class Interleave:
    """Stage one's batches: `batch(step)` for one rank of `world`; general and task rows never mix in a batch.

    general may be None with rho1 = 0; with rho1 None there are no task batches. masking None gives clean task batches:
    stage two.
    """

    general: Blocks | None
    task: Blocks
    rho1: int | None
    batch_rows: int
    seed: int
    masking: Masking | None
    pad_id: int
    rank: int = 0
    world: int = 1

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """The two readings, each with its own shuffles and its own position."""
        data = {"task": self.task} | ({"general": self.general} if self.general is not None else {})
        return {kind: Stream(blocks.lengths, self.batch_rows, (self.seed, kind)) for kind, blocks in data.items()}

    def kind(self, step: int) -> str:
        """Return "general" or "task": step counts from 0, the task batch ends each cycle of rho1 + 1 steps."""
        return "task" if self.rho1 is not None and (step + 1) % (self.rho1 + 1) == 0 else "general"

    def batch(self, step: int) -> Batch:
        """Make this rank's part of a step's batch."""
        kind = self.kind(step)
        before = 0 if self.rho1 is None else step // (self.rho1 + 1)  # task batches
        rows = self.streams[kind].rows(before if kind == "task" else step - before)
        blocks = self.task if kind == "task" else self.general
        return self._assemble(kind, blocks, rows, step)  # type: ignore[arg-type]

    def _assemble(self, kind: str, blocks: Blocks, rows: np.ndarray, step: int) -> Batch:
        lengths = blocks.lengths[rows]
        clean, attention, places = pad(blocks, rows, self.pad_id)
        tokens, chosen = clean, None
        if self.masking is not None:  # padding is a special token, so it is never chosen
            tokens, chosen = self.masking(clean, seed=self.seed, step=step, rows=rows)
        mine = slice(self.rank, None, self.world)
        return Batch(
            kind=kind,
            tokens=tokens[mine],
            attention=attention[mine],
            types=None if blocks.types is None else np.where(attention, blocks.types[places], 0)[mine].astype(np.int64),
            masked=None if chosen is None else np.flatnonzero(chosen[mine]),
            targets=None if chosen is None else clean[mine][chosen[mine]],
            labels=None if blocks.labels is None else blocks.labels[rows][mine],
            rows=len(rows),
            masked_total=0 if chosen is None else int(chosen.sum()),
            tokens_total=int(lengths.sum()),
            real_tokens=int(lengths[mine].sum()),
        )


class Ahead:
    """Makes a step's batch in a thread while the step before it is trained on."""

    def __init__(self, batches: Interleave, steps: int):
        self.batches, self.steps = batches, steps
        self.maker = ThreadPoolExecutor(1)
        self.made: dict[int, Future[Batch]] = {}

    def batch(self, step: int) -> Batch:
        """Return a step's batch; steps are asked for one after another."""
        made = self.made.pop(step, None) or self.maker.submit(self.batches.batch, step)
        if step + 1 < self.steps:
            self.made[step + 1] = self.maker.submit(self.batches.batch, step + 1)
        return made.result()


def pad(blocks: Blocks, rows: np.ndarray, pad_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gather rows into one rectangle: tokens and attention, int64 (rows, length), and each cell's flat place."""
    lengths = blocks.lengths[rows]
    width = int(lengths.max())
    inside = np.arange(width) < lengths[:, None]
    places = np.where(inside, blocks.offsets[rows][:, None] + np.arange(width), 0)
    tokens = np.where(inside, blocks.tokens[places], pad_id).astype(np.int64)
    return tokens, inside.astype(np.int64), places
