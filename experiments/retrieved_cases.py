"""What each method retrieved for a task: amounts, sources, overlap, and cases with matching terms marked, as a page.

    python experiments/retrieved_cases.py                                    # embedded data
    python experiments/retrieved_cases.py --tasks sciie --task-root data/tasks --corpus data/corpus --k 50

Looking at retrieved text is the quickest way to see whether a corpus serves a task (Yao et al. 2022, table 9).
"""

from dataclasses import dataclass, field, replace

import ray
import tyro

from tlm_ray import Options, make, plain_errors, ray_options, storage
from tlm_ray.corpus.tasks import load_task
from tlm_ray.report.cases import Retrieved, cases_page
from tlm_ray.retrieval.rake import key_phrases
from tlm_ray.retrieval.selection import SELECTION
from tlm_ray.runs.experiment import fitted


@dataclass(frozen=True, kw_only=True)
class RetrievedCases(Options):
    """Options of the page; it is about one task, the first of --tasks."""

    methods: list[str] = field(default_factory=lambda: ["bm25", "rake", "random"])
    """retrieval methods"""
    cases: int = 12
    """queries shown"""


def main() -> None:
    options = tyro.cli(RetrievedCases, description=__doc__)
    ray.init(**ray_options())
    flow = options.flow()
    flow = replace(flow, execution=fitted(flow.execution, options))
    task, recipe = flow.task(options.tasks[0]), options.recipe(options.tasks[0])
    stages = {method: flow.neighbours(replace(recipe, method=method), task) for method in options.methods}
    root = flow.execution.root
    records = make(list(stages.values()), root)
    queries = load_task(task.folder(root)).train_texts
    retrieved = [
        Retrieved(
            method=method,
            selection=storage.read_table(storage.join(stage.folder(root), SELECTION)),
            searched=[key_phrases(query) for query in queries] if method == "rake" else queries,
            dropped=max(record["facts"].get("contaminated", 0) for record in records.values()),  # the same for all
        )
        for method, stage in stages.items()
    ]
    page = cases_page(options.tasks[0], queries, retrieved, analyzer=recipe.analyzer, cases=options.cases)
    uri = storage.join(storage.absolute(options.out), "retrieved_cases.html")
    storage.write_bytes(uri, page.encode())
    print(uri)


if __name__ == "__main__":
    with plain_errors():
        main()
