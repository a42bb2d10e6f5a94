"""What a run would do: each stage found or to make, with its cost, before anything is spent."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from tlm_ray import storage
from tlm_ray.parallel import console
from tlm_ray.report import human
from tlm_ray.runs.execution import Execution
from tlm_ray.runs.stages import RECORD, Stage, found, unique

# Where nothing was made yet under the root: FLOPs a second by the paper's counting, and corpus bytes a second, of one
# worker. Measured on one core with AVX-512; an H100 or H200 reaches about 40 % of its bf16 peak.
CPU_FLOPS_PER_S, GPU_FLOPS_PER_S = 6e10, 3e14
SECONDS = {
    "documents": 60.0,
    "passages": 10.0,
    "statistics": 20.0,
    "neighbours": 60.0,
    "tokenizer": 10.0,
    "blocks": 10.0,
    "task": 1.0,
    "metrics": 10.0,
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One stage of a plan. seconds: estimated, 0 if found, None if it cannot be known."""

    stage: Stage
    found: bool
    seconds: float | None


def plan_lines(stages: Sequence[Stage], root: str, *, gpu: bool, workers: int) -> list[Line]:
    """List all stages, inputs first; times are estimated from the records under `root` where there are any."""
    there = found(stages, root)
    return [
        Line(
            stage=stage,
            found=stage.fingerprint in there,
            seconds=0.0 if stage.fingerprint in there else _estimate(stage, root, gpu, workers),
        )
        for stage in unique(stages)
    ]


def _estimate(stage: Stage, root: str, gpu: bool, workers: int) -> float | None:
    flops = stage.cost.get("flops")
    if flops is None:  # a data stage, or a training whose encoder was not opened yet
        return SECONDS.get(stage.name)
    return flops / training_rate(stage.name, root, gpu=gpu, workers=workers)


def training_rate(name: str, root: str, *, gpu: bool, workers: int) -> float:
    """Return the FLOPs a second, as the paper counts them, at which a stage trains: as recorded under the root."""
    return _measured(name, root) or (GPU_FLOPS_PER_S if gpu else CPU_FLOPS_PER_S) * workers


def _measured(name: str, root: str) -> float | None:
    """Return the median FLOPs a second of the trainings recorded under the root, None if there are none."""
    folder = storage.join(root, name)
    if not storage.exists(folder):
        return None
    records = [storage.read_json(f.uri) for f in storage.list_files(folder, RECORD, missing_ok=True)[:20]]
    rates = [
        r["cost"]["flops"] / r["facts"]["seconds"]
        for r in records
        if "flops" in r["cost"] and r["facts"].get("seconds")
    ]
    return statistics.median(rates) if rates else None


def show(stages: Sequence[Stage], execution: Execution) -> None:
    """Print the plan of making stages, and its totals."""
    compute = execution.compute
    lines = plan_lines(stages, execution.root, gpu=compute.gpu, workers=compute.workers)
    _print(lines, side_by_side=execution.side_by_side, workers=compute.workers, gpu=compute.gpu)


def _print(lines: Sequence[Line], *, side_by_side: int, workers: int, gpu: bool) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("stage", "fingerprint", "", "tokens", "FLOPs", "time"):
        table.add_column(name, justify="left" if name in ("stage", "fingerprint", "") else "right")
    for line in lines:
        cost = line.stage.cost
        tokens = f"{cost['tokens']:.2e}" if "tokens" in cost else ""
        flops = human(cost["flops"]) if "flops" in cost else ""
        state = "[green]found[/]" if line.found else "[yellow]to make[/]"
        seconds = "" if line.found else "not known" if line.seconds is None else _clock(line.seconds)
        table.add_row(line.stage.name, line.stage.fingerprint[:8], state, tokens, flops, seconds)
    console.print(table)
    todo = [line for line in lines if not line.found]
    trainings = sum(line.seconds or 0.0 for line in todo if line.stage.lane == "train")
    wall = sum(line.seconds or 0.0 for line in todo if line.stage.lane == "data") + trainings / side_by_side
    unknown = sum(line.seconds is None for line in todo)
    all_flops = sum(line.stage.cost.get("flops", 0) for line in todo)
    all_tokens = sum(line.stage.cost.get("tokens", 0) for line in todo)
    console.print(
        f"{len(lines) - len(todo)} of {len(lines)} stages found, {len(todo)} to make: {all_tokens:.2e} tokens, "
        f"{human(all_flops)} FLOPs, about {_clock(wall)}, of which training takes {trainings * workers / 3600:.2f} "
        f"{'GPU' if gpu else 'CPU'} hours{f', and {unknown} stages whose time is not known' if unknown else ''}"
    )


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
