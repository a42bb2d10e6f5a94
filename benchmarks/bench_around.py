"""Measure Ray's overhead: retrieval and training of the tiny pipeline on Ray, and in this process.

    python benchmarks/bench_around.py
    python benchmarks/bench_around.py --corpus data/corpus --task-root data/tasks --task sciie

Both sides make the same stages with the same code, on one worker, from the same inputs. Start-up is Ray's overhead when
there is almost nothing to do: a fiftieth of the corpus, a training of a few steps.
"""

import shutil
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import parallel, plain_errors, ray_options
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.process import tune_torch
from tlm_ray.runs.flow.data import EMBEDDED
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.stage import Stage

FEW = 5  # steps


@dataclass(frozen=True, kw_only=True)
class Around:
    """What to measure on."""

    corpus: str = ""
    """general corpus: file, folder, glob or URI; if unset: the embedded corpus"""
    task_root: str = ""
    """folder with one subfolder per task"""
    task: str = EMBEDDED
    """the task"""
    folder: str = "/tmp/around"
    """folder for stages"""
    turns: int = 5
    """repetitions per measurement"""


def main() -> None:
    options = tyro.cli(Around, description=__doc__)
    ray.init(**ray_options())
    corpus = open_corpus(options.corpus, column="text") if options.corpus else None
    flow = Flow(execution=Execution(root=options.folder, workers=1), corpus=corpus, task_root=options.task_root)
    table = Table("work", "s on Ray", "s called here", "start-up, s", "without it / called", box=None)
    assert TINY_RECIPE.stage_one is not None
    short = replace(TINY_RECIPE.stage_one, steps=FEW, warmup_steps=1, evaluate_every=FEW)
    for name, small in (("neighbours", {"corpus_share": 0.02}), ("stage_one", {"stage_one": short})):
        least, whole = (
            getattr(flow.stages(replace(TINY_RECIPE, **changes), options.task, 0), name) for changes in (small, {})
        )
        rows = [(*turn(whole, options.folder), *turn(least, options.folder)) for _ in range(options.turns + 1)][1:]
        on_ray, here, *_ = (statistics.median(column) for column in zip(*rows, strict=True))
        start_up = statistics.median(row[2] - row[3] for row in rows)
        ratio = statistics.median((row[0] - start_up) / row[1] for row in rows)
        table.add_row(name, *(f"{value:.2f}" for value in (on_ray, here, start_up)), f"{ratio:.3f}")
    Console().print(table)


def turn(stage: Stage, root: str) -> tuple[float, float]:
    """Make a stage on Ray and in this process; return the seconds of both."""
    on_ray = made(stage, root)
    tune_torch()
    with parallel.in_this_process():
        return on_ray, made(stage, root)


def made(stage: Stage, root: str) -> float:
    """Make a stage again, after its inputs; return its own seconds."""
    make(list(stage.inputs.values()), root)
    shutil.rmtree(Path(stage.folder(root)), ignore_errors=True)
    started = time.monotonic()
    make([stage], root)
    return time.monotonic() - started


if __name__ == "__main__":
    with plain_errors():
        main()
