"""Offer a retrieval method the stages that it may read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tlm_ray.corpus.passages import WORK
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.methods import Method, Search
from tlm_ray.retrieval.selection import PART_ROWS
from tlm_ray.runs.earlier import of_other_corpora
from tlm_ray.runs.stages import Stage

if TYPE_CHECKING:
    from tlm_ray.runs.pipeline import Flow


@dataclass(frozen=True)
class FlowSources:
    """The flow's stages that a retrieval method may read: see `tlm_ray.retrieval.methods.Sources`."""

    flow: "Flow"
    passages: Stage
    task: Stage
    depth: int

    def statistics(self, analyzer: Analyzer) -> Stage:
        return self.flow.statistics(self.passages, analyzer)

    def neighbours(self, method: Method) -> Stage:
        run = self.flow.execution
        gpus = run.compute.resources.get("GPU", 0)
        search = Search(depth=self.depth, shards=run.shards, workers=run.workers, gpus=gpus)

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            return method.find(folder, inputs, replace(search, earlier=of_other_corpora(stage, run.root)))

        stage = Stage(
            name="neighbours",
            version=method.version,
            parameters={**method.identity(self.depth), "part_rows": PART_ROWS},
            inputs=method.inputs(self),
            make=make,
            scratch=WORK,
            cost={"seconds": 60.0},
        )
        return stage
