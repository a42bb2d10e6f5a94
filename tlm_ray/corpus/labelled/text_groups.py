"""Group rows of a labelled set that have the same text, even if other spans of it are marked."""

import re
from collections.abc import Sequence

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.labelled.marks import marks_of


def count_seen(texts: Sequence[str], train: Sequence[str]) -> int:
    """Count the texts that are also in the training set, ignoring case, spaces and punctuation."""
    known = set(map(_letters, train)) - {""}
    return sum(_letters(text) in known for text in texts)


def names_of_alike(texts: Sequence[str], pairs: Sequence[str]) -> list[str]:
    """Return a name per row, equal for rows that differ in marks, case, spaces and punctuation alone.

    It is the smallest text of such rows, with its pair, so the order of rows has no effect.
    """
    own = [f"{text}\0{pair}" for text, pair in zip(texts, pairs, strict=True)]
    marks = marks_of(texts)
    bare = [marks.removed(text) for text in texts] if marks else texts
    keys = [(_letters(text) or text, _letters(pair) or pair) for text, pair in zip(bare, pairs, strict=True)]
    smallest: dict[tuple[str, str], str] = {}
    for key, text in zip(keys, own, strict=True):
        smallest[key] = min(text, smallest.get(key, text))
    return [smallest[key] for key in keys]


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


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())
