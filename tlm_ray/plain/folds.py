"""Cut labelled rows into folds for cross-validation; rows of one text stay together."""

from dataclasses import dataclass

import numpy as np

from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.corpus.labelled.text_groups import groups_of_texts

FOLDS = 3  # of train and dev together; five cost two thirds more
LARGE_DEV = 2_000  # rows of dev that choose by themselves: the standard error of an accuracy of 75 % is 1 point there


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """Rows to fit, and rows to score."""

    texts: list[str]
    """to fit"""
    labels: np.ndarray
    """of texts"""
    held_texts: list[str]
    """to score"""
    held_labels: np.ndarray
    """of held_texts"""


def folds_of(task: Task) -> list[Fold]:
    """Return folds of train and dev. The only one is train with dev, if dev is large or a class has too few texts.

    Rows with equal texts, apart from marks, are in one fold: texts of SciERC and ChemProt have many rows each. Of pairs
    the first texts count. Folds have about equal shares of the classes.
    """
    tables = [task.splits[split] for split in ("train", "dev")]
    texts, labels = [*task.texts("train"), *task.texts("dev")], np.concatenate([each["label"] for each in tables])
    groups = groups_of_texts([text for each in tables for text in each["text"].to_pylist()], [""] * len(texts))
    places = np.arange(len(texts))
    parts = [] if len(tables[1]) >= LARGE_DEV else _parts(labels, groups, is_number=not task.labels)
    return [
        Fold(
            texts=[texts[place] for place in places[~held]],
            labels=labels[~held],
            held_texts=[texts[place] for place in places[held]],
            held_labels=labels[held],
        )
        for held in parts or [places >= len(tables[0])]
    ]


def _parts(labels: np.ndarray, groups: np.ndarray, *, is_number: bool) -> list[np.ndarray]:
    """Return masks of held-out rows, each (rows,); none if a class is not in each fold and outside it."""
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    kinds = [np.ones(len(labels), bool)] if is_number else [labels == label for label in np.unique(labels)]
    if min(len(np.unique(groups[kind])) for kind in kinds) < FOLDS:
        return []
    cutter = (GroupKFold if is_number else StratifiedGroupKFold)(FOLDS, shuffle=True, random_state=0)
    held = [np.isin(np.arange(len(labels)), part) for _, part in cutter.split(labels, labels, groups)]
    return held if all((kind & ~part).any() for kind in kinds for part in held) else []
