"""Make batches, prepared by the objectives of their stream, as a pure function of the step."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from tlm_ray.training.objectives import Keys, Loss, Rows, Targets
from tlm_ray.training.sampler.mixers import Mixer
from tlm_ray.training.sampler.streams import Stream, check_streams
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

# Widths are rounded up to a multiple, so that few shapes occur. On CPUs oneDNN builds and caches a kernel per shape.
# After 400 steps of `tiny` a training used 0.89 GB with 8 and 0.95 GB with 4, in equal time. Padding was 3.5 and 1.5
# tokens per row.
WIDTH_TO = 8


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The padded rows of one step on one worker."""

    stream: str
    loss: Loss
    tokens: np.ndarray
    """int64 (rows, length)"""
    attention: np.ndarray
    """int64 (rows, length), 1 for tokens, 0 for padding"""
    types: np.ndarray | None
    """int64 (rows, length), token types; None if all are 0"""
    targets: Mapping[str, Targets]
    """by name of the objective"""
    tokens_total: int
    """tokens of the whole step, on all workers"""
    token_share: float
    """tokens of the whole step, relative to the mean of its stream"""
    real_tokens: int
    """tokens of this worker's rows, without padding"""
    is_idle: bool = False
    """computed only because other workers compute; it has no effect on the loss"""

    def parts(self, rows: int, *, at_least: int = 0) -> Iterator["Batch"]:
        """Split into parts of at most `rows` rows, each as wide as its longest row; 0 keeps the batch whole.

        Counts of the step still count the whole step, so the parts' losses sum to the batch's. at_least: minimum number
        of parts; extra parts are idle.
        """
        if not rows or rows >= len(self.tokens):
            parts = [self]
        else:
            parts = [self._part(slice(start, start + rows)) for start in range(0, len(self.tokens), rows)]
        yield from parts
        for _ in range(at_least - len(parts)):
            yield replace(parts[0], is_idle=True, real_tokens=0)

    def _part(self, rows: slice) -> "Batch":
        attention = self.attention[rows]
        width = _width(int(attention.sum(axis=1).max()), most=attention.shape[1])
        return replace(
            self,
            tokens=self.tokens[rows, :width],
            attention=attention[:, :width],
            types=None if self.types is None else self.types[rows, :width],
            targets={name: targets.of(rows, width) for name, targets in self.targets.items()},
            real_tokens=int(attention.sum()),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The batches of a training: `batch(step)` for one worker of `world`; a batch is of one stream."""

    streams: tuple[Stream, ...]
    mixer: Mixer
    vocabulary: Vocabulary
    seed: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        check_streams(self.streams)

    def batch(self, step: int) -> Batch:
        """Make this worker's part of a step's batch."""
        index, number = self.mixer.place(step)
        stream = self.streams[index]
        rows = stream.rows(number)
        tokens, attention, places = pad(stream.blocks, rows, self.vocabulary.pad_id)
        labels, types = stream.blocks.labels, stream.blocks.types
        whole = Rows(
            tokens,
            attention,
            labels=None if labels is None else labels[rows],
            types=None if types is None else np.where(attention, types[places], 0).astype(np.int64),
        )
        keys = Keys(self.seed, step, rows)
        for objective in stream.loss.objectives:  # padding is a special token, so it is never masked
            whole = objective.prepare(whole, self.vocabulary, keys)
        attention, mine = whole.attention, slice(self.rank, None, self.world)
        return Batch(
            stream=stream.name,
            loss=stream.loss,
            tokens=whole.tokens[mine],
            attention=attention[mine],
            types=None if whole.types is None else whole.types[mine],
            targets={name: targets.of(mine) for name, targets in whole.targets.items()},
            tokens_total=int(attention.sum()),
            token_share=float(attention.sum() / stream.mean_tokens),
            real_tokens=int(attention[mine].sum()),
        )

    def rows_of(self, rank: int) -> int:
        """Return a worker's number of rows in a step; the first worker has the most."""
        return len(range(rank, self.streams[0].batch_rows, self.world))


class Prefetcher:
    """Prefetches the next step's batch in a thread."""

    def __init__(self, batches: Batches, steps: int):
        self.batches, self.steps = batches, steps
        self.maker = ThreadPoolExecutor(1)
        self.made: dict[int, Future[Batch]] = {}

    def batch(self, step: int) -> Batch:
        """Return a step's batch; call it for consecutive steps."""
        made = self.made.pop(step, None) or self.maker.submit(self.batches.batch, step)
        if step + 1 < self.steps:
            self.made[step + 1] = self.maker.submit(self.batches.batch, step + 1)
        return made.result()


def pad(blocks: Blocks, rows: np.ndarray, pad_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gather rows into padded arrays: tokens and attention, int64 (rows, length), and each cell's flat index.

    The length is a multiple of WIDTH_TO, but at most that of the longest block.
    """
    lengths = blocks.lengths[rows]
    width = _width(int(lengths.max()), most=blocks.longest)
    inside = np.arange(width) < lengths[:, None]
    places = np.where(inside, blocks.offsets[rows][:, None] + np.arange(width), 0)
    tokens = np.where(inside, blocks.tokens[places], pad_id).astype(np.int64)
    return tokens, inside.astype(np.int64), places


def padded_inputs(blocks: Blocks, rows: np.ndarray, pad_id: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return a model's inputs for rows, with token types if the blocks have them, and each cell's flat index."""
    tokens, attention, places = pad(blocks, rows, pad_id)
    inputs = {"input_ids": tokens, "attention_mask": attention}
    if blocks.types is not None:
        inputs["token_type_ids"] = np.where(attention, blocks.types[places], 0).astype(np.int64)
    return inputs, places


def _width(longest: int, *, most: int) -> int:
    return min(longest + -longest % WIDTH_TO, most)
