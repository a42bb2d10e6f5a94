"""Which rows of a labelled set belong together: those of one text, whatever spans of it they mark."""

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.marks import marks_of


def text_groups(texts: list[str]) -> np.ndarray:
    """Number the rows of equal texts alike, from 0 in the order of first appearance, (rows,); marks do not count."""
    marks = marks_of(texts)
    bare = [marks.removed(text) for text in texts] if marks else texts
    numbers = {text: number for number, text in enumerate(dict.fromkeys(bare))}
    return np.array([numbers[text] for text in bare], np.int64)


def read_text_groups(folder: str, split: str) -> np.ndarray:
    """Return the groups of a split of a task that a stage keeps; a pair of texts counts as one text."""
    table = storage.read_table(storage.join(folder, f"{split}.arrow"))
    columns = (table[name].to_pylist() for name in ("text", "text_pair"))
    return text_groups(["\0".join(both) for both in zip(*columns, strict=True)])
