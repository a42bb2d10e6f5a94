"""Rows made of two: the beginning of one and the end of another, which no label is known of (CutMix, Yun et al. 2019).

Teachers disagree on them where they have learned the labels of all rows that there are: on SciERC five trainings
together say the label of 99.9 % of the training texts, which teaches a student nothing new.
"""

import numpy as np

from tlm_ray.training.blocks import Blocks


def spliced(rows: Blocks, times: int) -> Blocks:
    """Return `times` as many rows, without labels: each row is begun and another one ended, both at a drawn share.

    A row is no longer than the longer of its two, begins as the first does and ends as the second, special tokens
    included. Draws are the same in each call.
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
