"""Load the passages and queries of the benchmarks, with the options for them."""

from dataclasses import dataclass, field

import pyarrow as pa

from tlm_ray.corpus.embedded.embedded_task import docstring_corpus_and_task
from tlm_ray.corpus.embedded.packages import installed_packages, read_package
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.labelled.tasks import read_task


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What to measure on."""

    corpus: str = ""
    """passages: file, folder, glob or URI; if unset: the embedded corpus"""
    column: str = "text"
    """text column of the corpus"""
    task_root: str = ""
    """folder with one subfolder per task"""
    tasks: list[str] = field(default_factory=list)
    """tasks whose training texts are the queries; if unset: the embedded task"""
    ks: list[int] = field(default_factory=lambda: [50, 500, 5000])
    """passages per query"""
    queries: int = 200
    """queries per task, spread evenly over its rows"""
    turns: int = 5
    """repetitions per measurement"""
    index: bool = True
    """also measure indexing"""
    json: bool = False
    """print the results as one JSON object on the last line"""


def load(options: Bench) -> tuple[pa.Array, dict[str, list[str]]]:
    """Return the passages, and training texts by task."""
    if options.corpus:
        corpus = open_corpus(options.corpus, column=options.column)
        batches = [batch for file in corpus.files for batch in read_columns(file.uri, [options.column])]
        texts = pa.chunked_array([batch[options.column].cast(pa.large_string()) for batch in batches])
        tasks = {name: read_task(name, task_root=options.task_root).train_texts for name in options.tasks}
    else:
        table, task = docstring_corpus_and_task({name: read_package(name) for name in installed_packages()})
        texts, tasks = table["text"].cast(pa.large_string()), {"docstrings": task["train"]["text"].to_pylist()}
    return texts.combine_chunks(), {name: _evenly(own, options.queries) for name, own in tasks.items()}


def _evenly(texts: list[str], count: int) -> list[str]:
    return [texts[len(texts) * i // count] for i in range(count)] if len(texts) > count else texts
