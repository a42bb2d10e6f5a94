"""Initialise token embeddings and output bias from token counts of the training text.

The embeddings are a truncated SVD of positive pointwise mutual information (Levy & Goldberg 2014; contexts smoothed by
the power 0.75, Levy et al. 2015). The bias is the log of each token's frequency. A model needs thousands of steps to
learn as much from text.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tlm_ray.identity import LATER
from tlm_ray.training.tokens.blocks import Blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SMOOTHING = 0.75
PASSES = 4  # power iterations of the randomised SVD (Halko et al. 2011)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Settings of the initialisation from token counts."""

    window: int = 5
    """window to each side; a token at distance d counts 1/d"""
    scale: float = 0.05
    """root mean square of the embeddings"""
    least: int = 3
    """minimum occurrences; rarer tokens keep random embeddings"""
    embeddings: bool = field(default=True, metadata=LATER)
    """False: the bias alone, for a pretrained encoder without a head that predicts tokens"""

    def __post_init__(self) -> None:
        for name in ("window", "least"):
            if getattr(self, name) < 1:
                raise ValueError(f"counts: {name} {getattr(self, name)}: must be 1 or more")
        if not 0 < self.scale < np.inf:
            raise ValueError(f"counts: scale {self.scale}: must be more than 0, such as 0.05")


class Counted(NamedTuple):
    """The initial embeddings and bias."""

    embeddings: np.ndarray | None
    """float32 (vocabulary, width), 0 for rare tokens; None without `Counts.embeddings`"""
    bias: np.ndarray
    """float32 (vocabulary,), log of each token's share of the text, with add-one smoothing"""


def count(blocks: list[Blocks], how: Counts, *, vocabulary: int, special_ids: tuple[int, ...], width: int) -> Counted:
    """Return embeddings and bias from the text of some blocks; special tokens get no neighbours.

    With fewer distinct tokens than `width`, the remaining columns are 0. ValueError if there are no two adjacent
    tokens.
    """
    frequency = sum((np.bincount(_text(each), minlength=vocabulary) for each in blocks), np.zeros(vocabulary, np.int64))
    share = (frequency + 1) / (frequency + 1).sum()
    bias = np.log(share).astype(np.float32)
    if not how.embeddings:
        return Counted(None, bias)
    information = _information(together(blocks, how.window, vocabulary, special_ids))
    if not information.nnz:
        raise ValueError("counts: the text has no two adjacent tokens; give more text, or counts=None")
    embeddings = _decomposed(information, width)
    size = np.sqrt((embeddings**2).mean(axis=1, keepdims=True))
    known = (frequency >= how.least) & (np.diff(information.indptr) > 0)
    scaled = np.divide(how.scale * embeddings, size, out=np.zeros_like(embeddings), where=known[:, None])
    return Counted(scaled.astype(np.float32), bias)


def _text(blocks: Blocks) -> np.ndarray:
    """Return the tokens of some blocks, without those that follow in the shared array."""
    return blocks.tokens[: blocks.offsets[-1]]


def together(blocks: list[Blocks], window: int, vocabulary: int, special_ids: tuple[int, ...]) -> "csr_array":
    """Count pairs of tokens in a row within a window, weighted by 1 / distance, symmetrically."""
    from scipy.sparse import coo_array, csr_array  # here, because its import takes 0.3 s of every command

    found = csr_array((vocabulary, vocabulary), dtype=np.float64)
    for each in blocks:
        row = np.repeat(np.arange(len(each.lengths)), each.lengths)
        tokens = _text(each)
        usual = ~np.isin(tokens, special_ids)
        for distance in range(1, window + 1):
            left, right = tokens[:-distance], tokens[distance:]
            kept = (row[:-distance] == row[distance:]) & usual[:-distance] & usual[distance:]
            weights = np.full(int(kept.sum()), 1.0 / distance)
            found += coo_array((weights, (left[kept], right[kept])), shape=found.shape).tocsr()
    return (found + found.T).tocsr()


def _information(together: "csr_array") -> "csr_array":
    """Return the positive pointwise mutual information of tokens (rows) and contexts (columns)."""
    total = np.asarray(together.sum(axis=1)).ravel()
    context = total**SMOOTHING
    cells = together.tocoo()
    found = np.log(cells.data * context.sum() / (total[cells.row] * context[cells.col]))
    kept = found > 0
    return type(together)((found[kept], (cells.row[kept], cells.col[kept])), shape=together.shape)


def _decomposed(information: "csr_array", width: int) -> np.ndarray:
    """Return the left singular vectors of the largest singular values, times the roots of these, (rows, width).

    It runs on one thread, so that sums have a fixed order.
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    seen = int((np.diff(information.indptr) > 0).sum())
    with threadpool_limits(1):
        found = randomized_svd(information, n_components=min(width, seen), n_iter=PASSES, random_state=0)
    vectors, values, _ = found
    return np.pad(vectors * np.sqrt(values), ((0, 0), (0, width - len(values))))
