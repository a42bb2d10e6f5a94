"""Which rows of a labelled set belong together: those of one text, whatever spans of it they mark."""

from collections.abc import Sequence

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.marks import marks_of


def groups_of_texts(texts: Sequence[str], pairs: Sequence[str]) -> np.ndarray:
    """Number the rows of equal texts alike, from 0 in the order of first appearance, (rows,); marks do not count.

    pairs: each row's second text, "" for none; rows are alike only if both texts are.
    """
    marks = marks_of(texts)
    bare = [marks.removed(text) for text in texts] if marks else texts
    both = list(zip(bare, pairs, strict=True))
    numbers = {row: number for number, row in enumerate(dict.fromkeys(both))}
    return np.array([numbers[row] for row in both], np.int64)


def read_text_groups(folder: str, split: str) -> np.ndarray:
    """Return the groups of a split of a task that a stage keeps."""
    table = storage.read_table(storage.join(folder, f"{split}.arrow"))
    return groups_of_texts(table["text"].to_pylist(), table["text_pair"].to_pylist())
