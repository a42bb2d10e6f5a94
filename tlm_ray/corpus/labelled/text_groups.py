"""Group rows of a labelled set that have the same text, even if other spans of it are marked."""

from collections.abc import Sequence

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.labelled.marks import marks_of


def groups_of_texts(texts: Sequence[str], pairs: Sequence[str]) -> np.ndarray:
    """Return a group number per row, (rows,), from 0 in order of first appearance.

    Rows are in one group if both texts are equal, apart from marks. pairs: each row's second text, "" for none.
    """
    marks = marks_of(texts)
    bare = [marks.removed(text) for text in texts] if marks else texts
    both = list(zip(bare, pairs, strict=True))
    numbers = {row: number for number, row in enumerate(dict.fromkeys(both))}
    return np.array([numbers[row] for row in both], np.int64)


def read_text_groups(folder: str, split: str) -> np.ndarray:
    """Return the groups of a split, for the folder of a task stage."""
    table = storage.read_table(storage.join(folder, f"{split}.arrow"))
    return groups_of_texts(table["text"].to_pylist(), table["text_pair"].to_pylist())
