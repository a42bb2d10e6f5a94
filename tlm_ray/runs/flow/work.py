"""Do the work of small stages, such as embedded data, tokenizer, token blocks and scores, on workers of the cluster.

Imports inside the functions load on workers only, because the driver does not need them.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import pyarrow as pa

from tlm_ray import parallel, storage
from tlm_ray.corpus.embedded.embedded_task import docstring_corpus_and_task
from tlm_ray.corpus.embedded.packages import LARGE, installed_packages, read_package
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.process import tune_torch
from tlm_ray.retrieval.selection import SelectionStore


def write_docstrings(folder: str, *, workers: int) -> dict[str, Any]:
    """Write the embedded corpus and task from the docstrings of installed packages."""
    # the large packages first, so that none of them runs alone at the end
    packages = sorted(installed_packages(), key=lambda name: (name not in LARGE, name))
    items = [{"package": package} for package in packages]
    made = parallel.each(items, _PackageReader, arguments=(), workers=workers, title="read docstrings")
    corpus, task = docstring_corpus_and_task(dict(sorted(made, key=itemgetter(0))))
    with storage.folder_for_writing(folder) as path:
        storage.write_parquet(f"{path}/corpus/docstrings.parquet", corpus)
        for split, table in task.items():
            storage.write_parquet(f"{path}/task/{split}.parquet", table)
    return {"documents": len(corpus), "task_rows": sum(len(table) for table in task.values())}


class _PackageReader:
    """A worker that reads one package's docstrings."""

    def __call__(self, item: dict[str, str]) -> tuple[str, pa.Table]:
        return item["package"], read_package(item["package"])


def write_tokenizer(folder: str, inputs: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """Write the tokenizer of a selection and one or more tasks."""
    from tlm_ray.training.tokens.preparation import make_tokenizer

    tasks = [load_task(location) for name, location in inputs.items() if name.startswith("task")]
    return make_tokenizer(folder, tasks, _selection(inputs), **options)


def write_blocks(folder: str, inputs: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """Write the token blocks of a selection and a task."""
    from tlm_ray.training.tokens.preparation import make_blocks

    return make_blocks(folder, load_task(inputs["task"]), _selection(inputs), inputs["tokenizer"], **options)


def write_counts(folder: str, blocks: str, how: Any, **options: Any) -> dict[str, Any]:
    """Write the initial token embeddings and output bias of a training."""
    from tlm_ray.training.tokens.preparation import make_counts

    return make_counts(folder, blocks, how, **options)


def write_scores(folder: str, blocks: str, model: str, **options: Any) -> dict[str, Any]:
    """Score a model on dev and test."""
    from tlm_ray.training.scoring.evaluation import evaluate

    return evaluate(folder, blocks, model, **options)


def write_student_rows(folder: str, blocks: str, **options: Any) -> dict[str, Any]:
    """Write the rows that a student learns."""
    from tlm_ray.training.students.rows import write_rows

    return write_rows(folder, blocks, **options)


def teacher(*arguments: Any) -> Callable[[dict[str, Any]], Any]:
    """Open a teacher, which labels chunks of the rows that a student learns."""
    tune_torch()
    from tlm_ray.training.students.teaching import Teacher

    return Teacher(*arguments)


def write_soft_labels(folder: str, blocks: str, rows: str, labelled: list[str]) -> dict[str, Any]:
    """Write the rows that a student learns, with the mean of its teachers' predictions."""
    from tlm_ray.training.students.soft_labels import write_soft_labels

    return write_soft_labels(folder, blocks, rows, labelled)


def _selection(inputs: Mapping[str, str]) -> list[str]:
    return SelectionStore.open(inputs["neighbours"]).files if "neighbours" in inputs else []


def write_looks(folder: str, blocks: str, model: str, **options: Any) -> dict[str, Any]:
    """Write the attention targets of a trained classifier's heads."""
    from tlm_ray.training.scoring import attention_heads

    return attention_heads.write_looks(folder, blocks, model, **options)
