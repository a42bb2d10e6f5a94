"""Lay out and read the stage of attention targets of a trained model's heads."""

from typing import Any

import numpy as np

from tlm_ray import parallel, storage
from tlm_ray.report.figures.attention import Heads
from tlm_ray.runs.flow import work
from tlm_ray.runs.flow.each_stage import MODELS
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.stage import Stage, Stages

EXAMPLE = "example.arrow"


def attention_stage(flow: Flow, stages: Stages, *, rows: int) -> Stage:
    """Return the stage of attention shares of each head over the first dev rows, and the weights over the first row."""
    compute, last = flow.execution.compute, stages.last
    return Stage(
        name="attention",
        version=1,
        parameters={"rows": rows},
        inputs={"blocks": stages.blocks, last.name: last},
        make=lambda folder, inputs: parallel.on_worker(
            work.write_looks,
            folder,
            inputs["blocks"],
            storage.join(inputs[last.name], MODELS[last.name]),
            rows=rows,
            device="cuda" if compute.gpu else "cpu",
            threads=1,
            resources=dict(compute.resources),
        ),
        lane="train",
        cost={"seconds": 10.0},
    )


def read_heads(stage: Stage, root: str, *, row: str, task: str) -> Heads:
    """Return the attention shares of an attention stage, as a row of a table."""
    facts: dict[str, Any] = (stage.record(root) or {})["facts"]
    shares = {name: np.array(facts[name]) for name in ("previous", "next", "marks")}
    return Heads(row=row, task=task, **shares)


def read_example(stage: Stage, root: str) -> np.ndarray:
    """Return the weights over the first row of the dev set, (layers, heads, length, length)."""
    weights = storage.read_table(storage.join(stage.folder(root), EXAMPLE))["weights"]
    return weights.combine_chunks().to_numpy_ndarray()
