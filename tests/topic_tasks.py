"""Tasks in memory: texts of a topic each."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
from small_data import TOPICS, sentences

from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.plain.learners import Fitted
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.plain.terms import Terms, Vocabulary


def make_task(*, metric: str = "accuracy", classes: int = 3) -> Task:
    """Texts of a topic each, the label; or, of a regression, how long a text is."""
    rng, topics, splits = np.random.default_rng(3), list(TOPICS)[:classes], {}
    for split, rows in (("train", 40), ("dev", 20), ("test", 20)):
        labels = rng.integers(0, classes, rows)
        texts = [sentences(rng, topics[label], 1) for label in labels]
        numbers = labels if metric == "accuracy" else np.array([float(len(text.split())) for text in texts])
        splits[split] = pa.table({"text": texts, "text_pair": [""] * rows, "label": numbers})
    named = tuple(topics) if metric == "accuracy" else ()
    return Task(name="t", metric=metric, labels=named, digests=("", "", ""), splits=splits)


def marked(task: Task) -> Task:
    """Its texts, each of which marks a word of its topic and a word at its end."""

    def mark(text: str) -> str:
        first, *rest, last = text.split()
        return " ".join([first, "[[", *rest[:1], "]]", *rest[1:], "<<", last, ">>"])

    splits = {
        split: table.set_column(0, "text", pa.array(list(map(mark, table["text"].to_pylist()))))
        for split, table in task.splits.items()
    }
    return replace(task, splits=splits)


def linear_model(words: list[str], weights: np.ndarray, labels: tuple[str, ...]) -> LinearModel:
    """A linear model of given words, (columns, words), without a bias."""
    vocabulary = Vocabulary(of=Terms(kind="words"), terms=words, idf=np.ones(len(words)))
    return LinearModel(vocabularies=(vocabulary,), fitted=Fitted(weights, np.zeros(len(weights))), labels=labels)
