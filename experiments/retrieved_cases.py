"""Write a page of what each method retrieved for a task: amounts, sources, overlap, and marked examples.

    python experiments/retrieved_cases.py                                    # embedded data
    python experiments/retrieved_cases.py --tasks sciie --task-root data/tasks --corpus data/corpus --k 50

Reading retrieved text is the quickest way to see whether a corpus suits a task (Yao et al. 2022, table 9).
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import (
    Folders,
    Methods,
    OneTask,
    Passages,
    Scale,
    Stage,
    Workers,
    make,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    storage,
)  # fmt: skip
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.report.cases import Retrieved, cases_page
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.runs.preflight import check_cluster, fitted
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.registry import note


@dataclass(frozen=True, kw_only=True)
class RetrievedCases:
    """Options of the page on one task."""

    data: OneTask = field(default_factory=OneTask)
    scale: Scale = field(default_factory=Scale)
    passages: Passages = field(default_factory=Passages)
    methods: Methods = field(default_factory=lambda: Methods(methods=["bm25", "rake", "random"]))
    place: Folders = field(default_factory=Folders)
    workers: Workers = field(default_factory=Workers)
    cases: int = 12
    """queries shown"""


def _left_out(stage: Stage, records: Records) -> int:
    """Return the number of passages excluded as contaminated; drawing methods exclude those of BM25."""
    return max(records.facts(each).get("contaminated", 0) for each in stage.upstream())


def main() -> None:
    options = parse(RetrievedCases, __doc__)
    flow = open_flow(options.data, options.place, options.workers)
    ray.init(**ray_options())
    check_cluster(flow.execution, [place for corpus in flow.all_corpora for place in corpus.locations])
    flow = replace(flow, execution=fitted(flow.execution))
    name, methods = options.data.task, options.methods.chosen()
    recipe = options.passages.change(options.scale.recipe(name, flow))
    trainings = {method: flow.stages(replace(recipe, method=chosen), name, 0) for method, chosen in methods.items()}
    stages = {method: laid_out.neighbours for method, laid_out in trainings.items()}
    root = flow.execution.root
    asked = [stage for stage in stages.values() if stage is not None]
    note(root, "retrieved_cases", asked)
    records = Records(root)
    make(asked, root, known=records)
    task = load_task(flow.task(name).folder(root))
    retrieved = [
        Retrieved(
            method=method,
            selection=SelectionStore.open(stage.folder(root)).read(),
            searched=methods[method].queries(task.query_texts),
            dropped=_left_out(stage, records),
        )
        for method, stage in stages.items()
        if stage is not None
    ]
    page = cases_page(name, task.train_texts, retrieved, analyzer=Analyzer(), cases=options.cases)
    uri = storage.join(options.place.out, "retrieved_cases.html")
    storage.write_bytes(uri, page.encode())
    print(storage.shown(uri))


if __name__ == "__main__":
    with plain_errors():
        main()
