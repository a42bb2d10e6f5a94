"""Splice rows: the beginning of one and the end of another, without a label (CutMix, Yun et al. 2019).

Teachers have memorised the labels of training rows: on SciERC five trainings together predict 99.9 % of them, which
teaches a student nothing new. On spliced rows they disagree.
"""

import numpy as np

from tlm_ray.training.tokens.blocks import Blocks


def spliced(rows: Blocks, times: int) -> Blocks:
    """Return `times` as many rows, without labels, each the start of a row and the end of another, of random lengths.

    A row is no longer than the longer of its two sources, and keeps their special tokens at start and end. Draws are
    the same in each call.
    """
    generator = np.random.default_rng(0)
    first = np.tile(np.arange(len(rows)), times)
    second = np.concatenate([generator.permutation(len(rows)) for _ in range(times)])
    share = generator.random(len(first))
    begun, ended = (1 + np.floor(share * (rows.lengths[part] - 2)).astype(np.int64) for part in (first, second))
    starts, ends = rows.offsets[first], rows.offsets[second + 1]
    pieces = zip(starts, starts + begun, rows.offsets[second] + ended, ends, strict=True)
    taken = np.concatenate([np.r_[a:b, c:d] for a, b, c, d in pieces])
    offsets = np.concatenate([[0], np.cumsum(begun + rows.lengths[second] - ended)])
    return Blocks(rows.tokens[taken], offsets, None if rows.types is None else rows.types[taken])
