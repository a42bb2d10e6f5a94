"""Examine the predictions of each task's best row: confusions, calibration, worst errors, nearest training texts."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from tlm_ray.corpus.labelled.tasks import Task, load_task
from tlm_ray.evaluation.calibration import confidence_bins
from tlm_ray.report.examined import Case, Examined, Near, Passage, Wrong
from tlm_ray.retrieval import index_passages, search
from tlm_ray.retrieval.methods import Method
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.runs.groups import Group
from tlm_ray.storage import read_table, shown

WORST = 10  # errors per task
NEAREST = 3  # training texts per error
MOST_SEARCHED = 20_000  # training texts, evenly spaced: an index of them takes seconds and half a GB
CASES, PASSAGES = 3, 2  # training texts per task, and passages of each


def examined(groups: Sequence[Group], split: str) -> Iterator[Examined]:
    """Yield the best row on dev of each task, of those whose outputs are probabilities of classes."""
    for task in dict.fromkeys(group.task for group in groups):
        known = [group for group in groups if group.task == task and group.gives_probabilities(split)]
        best = max(known, key=lambda group: fmean(group.dev_scores), default=None)
        if best is not None:
            yield _examined(best, split)


def _examined(group: Group, split: str) -> Examined:
    gold, probabilities, run = group.probabilities(split)
    task, classes = load_task(group.task_folder), probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    return Examined(
        task=group.task,
        row=group.name,
        run=run,
        split=split,
        labels=task.labels,
        counts=np.bincount(gold * classes + predicted, minlength=classes**2).reshape(classes, classes),
        bins=confidence_bins(gold, probabilities),
        errors=worst_errors(task, split, gold, probabilities),
    )


def worst_errors(task: Task, split: str, gold: np.ndarray, probabilities: np.ndarray) -> list[Wrong]:
    """Return the wrong rows with the lowest probability of their class, and the training texts nearest by BM25.

    gold: (rows,) class ids. probabilities: (rows, classes).
    """
    predicted, rows = probabilities.argmax(axis=1), np.arange(len(gold))
    said = probabilities[rows, gold]
    order = np.argsort(said, kind="stable")
    worst = order[(predicted != gold)[order]][:WORST].tolist()
    texts = task.texts(split)
    nearest = _nearest(task, [texts[row] for row in worst]) if worst else []
    return [
        Wrong(
            row=row,
            text=texts[row],
            gold=task.labels[gold[row]],
            predicted=task.labels[predicted[row]],
            gold_share=float(said[row]),
            predicted_share=float(probabilities[row, predicted[row]]),
            nearest=near,
        )
        for row, near in zip(worst, nearest, strict=True)
    ]


def _nearest(task: Task, texts: Sequence[str]) -> list[list[Near]]:
    """Return the training texts nearest to each text, fewer where few share a word with it."""
    every = -(-len(task.train_texts) // MOST_SEARCHED)
    train, labels = task.train_texts[::every], task.splits["train"]["label"].to_numpy()[::every]
    found = search(index_passages(train), texts, k=min(NEAREST, len(train)))
    return [[Near(text=train[i], label=task.labels[labels[i]]) for i in ids if i >= 0] for ids in found.ids.tolist()]


def cases(name: str, task_folder: str, selection_folder: str, method: Method) -> list[Case]:
    """Return what was retrieved for a few training texts, spread evenly; [] for methods without queries.

    name: of the task. The texts are among those of the selection's first part, which has the best ranks.
    """
    files = SelectionStore.open(selection_folder).files
    if not files:
        return []
    selected = read_table(files[0])
    queries = selected["query"].to_numpy()
    asked = np.unique(queries[queries >= 0])
    count = min(CASES, len(asked))
    picked = [int(asked[len(asked) * place // count]) for place in range(count)]
    if not picked:
        return []
    task = load_task(task_folder)
    searched = method.queries([task.query_texts[row] for row in picked])
    return [
        Case(
            task=name,
            method=method.name,
            text=task.train_texts[row],
            query=query,
            passages=[
                Passage(text=p["text"], source=shown(str(p["source"])), rank=p["rank"], score=p["score"])
                for p in selected.take(np.flatnonzero(queries == row)[:PASSAGES]).to_pylist()
            ],
        )
        for row, query in zip(picked, searched, strict=True)
    ]
