"""Plan a run before it starts: each stage (cached or to run), the trainings that need it, and its cost."""

import heapq
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rich.table import Table
from rich.text import Text

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.report import human
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.stage import RECORD, Stage, found, unique
from tlm_ray.storage.listing import list_files

# FLOPs per second of one worker, as the paper counts, if no training is recorded under the root. Measured on
# one core with AVX-512; an H100 or H200 reaches about 40 % of its bf16 peak.
CPU_FLOPS_PER_S, GPU_FLOPS_PER_S = 6e10, 3e14
LANES = ("data", "train")
NOTHING_KNOWN: Mapping[str, float] = MappingProxyType({})
MOST_NAMES = 2  # maximum number of names in a line of a plan
MOST_READ = 50  # records of trainings to read, to estimate their speed


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One training of a plan: its last stage, row, task and seed."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    seed: int
    """the training's seed"""
    stage: Stage
    """its last stage"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One stage of a plan."""

    stage: Stage
    """the stage"""
    needed_by: str
    """rows, tasks and seeds that need it, in words"""
    found: bool
    """whether it is cached"""
    seconds: float | None
    """estimated seconds; 0 if cached, None if unknown"""


def plan_lines(
    wanted: Sequence[Wanted], root: str, *, compute: Compute, seconds: Mapping[str, float] = NOTHING_KNOWN
) -> list[Line]:
    """List all stages, inputs first.

    compute: resources of one training. seconds: of stages, by fingerprint, if better known than from the records under
    `root` or the stages' own costs.
    """
    stages = [one.stage for one in wanted]
    there = found(stages, root)
    users = _users(wanted)
    return [
        Line(
            stage=stage,
            needed_by=_in_words(users[stage.fingerprint], wanted),
            found=stage.fingerprint in there,
            seconds=0.0
            if stage.fingerprint in there
            else seconds.get(stage.fingerprint) or _estimate(stage, root, compute),
        )
        for stage in unique(stages)
    ]


def _users(wanted: Sequence[Wanted]) -> dict[str, list[Wanted]]:
    """Return the trainings that need each stage, by fingerprint."""
    users: dict[str, list[Wanted]] = {}
    for one in wanted:
        for fingerprint in {stage.fingerprint for stage in one.stage.upstream()}:
            users.setdefault(fingerprint, []).append(one)
    return users


def _in_words(users: Sequence[Wanted], wanted: Sequence[Wanted]) -> str:
    """Name rows, tasks and seeds, or count them if they are many; omit those that all trainings share."""
    words = []
    for name, prefix in (("row", ""), ("task", ""), ("seed", "seed ")):
        own, known = (list(dict.fromkeys(str(getattr(one, name)) for one in some)) for some in (users, wanted))
        if len(own) < len(known):
            named = prefix + " and ".join(own)
            words.append(named if len(own) <= MOST_NAMES else f"{len(own)} of {len(known)} {name}s")
    return "; ".join(words) or "all"


def _estimate(stage: Stage, root: str, compute: Compute) -> float | None:
    """Return the seconds of a training, from its FLOPs, or of another stage, from its own estimate."""
    flops = stage.cost.get("flops")
    if flops is None:  # or a training whose encoder is not opened yet
        return stage.cost.get("seconds")
    return flops / training_rate(stage.name, root, compute)


def training_rate(name: str, root: str, compute: Compute) -> float:
    """Return the FLOPs per second of a training stage, as the paper counts them, from the records under the root."""
    usual = GPU_FLOPS_PER_S if compute.gpu else CPU_FLOPS_PER_S
    return _measured(name, root, compute) or usual * compute.workers


def _measured(name: str, root: str, compute: Compute) -> float | None:
    """Return the median FLOPs per second of recorded trainings on the same resources; None if there are none."""
    folder = storage.join(root, name)
    if not storage.exists(folder):
        return None
    records = [storage.read_record(f.uri) for f in list_files(folder, RECORD, missing_ok=True)[:MOST_READ]]
    rates = [
        r["cost"]["flops"] / r["facts"]["seconds"]
        for r in records
        if "flops" in r["cost"] and r["facts"].get("seconds") and r["facts"].get("compute") == compute.parts
    ]
    return statistics.median(rates) if rates else None


def show(
    wanted: Sequence[Wanted],
    execution: Execution,
    *,
    seconds: Mapping[str, float] = NOTHING_KNOWN,
    at_once: int = 0,
    price: float | None = None,
) -> None:
    """Print the plan of making trainings, and its totals.

    seconds: of stages, see `plan_lines`. at_once: parallel trainings, 0 for the execution's own number. price: per GPU
    hour, or CPU hour.
    """
    compute = execution.compute
    lines = plan_lines(wanted, execution.root, compute=compute, seconds=seconds)
    console.print(_table(lines))
    for words in _totals(lines, execution, at_once or execution.side_by_side or 1, price):
        console.print(words)


def wall_seconds(lines: Sequence[Line], *, at_once: int, overlap: bool) -> float:
    """Return the wall time of the stages to run: data stages one by one, trainings in parallel, each after its inputs.

    overlap: whether trainings may run beside data stages. Ready stages start in the order of the lines, as in `make`.
    """
    places = {line.stage.fingerprint: place for place, line in enumerate(lines)}
    missing = [{s.fingerprint for s in line.stage.inputs.values()} & places.keys() for line in lines]
    users: dict[str, list[int]] = {}
    for place, inputs in enumerate(missing):
        for name in inputs:
            users.setdefault(name, []).append(place)
    ready: dict[str, list[int]] = {lane: [] for lane in LANES}
    for place, inputs in enumerate(missing):
        if not inputs:
            heapq.heappush(ready[lines[place].stage.lane], place)
    room, data, clock = {"data": 1, "train": at_once}, sum(line.stage.lane == "data" for line in lines), 0.0
    running: list[tuple[float, int]] = []
    while running or any(ready.values()):
        for lane in LANES:
            while ready[lane] and room[lane] and (lane == "data" or overlap or not data):
                place = heapq.heappop(ready[lane])
                heapq.heappush(running, (clock + (lines[place].seconds or 0.0), place))
                room[lane] -= 1
        clock, place = heapq.heappop(running)
        stage = lines[place].stage
        room[stage.lane] += 1
        data -= stage.lane == "data"
        for user in users.get(stage.fingerprint, ()):
            missing[user].discard(stage.fingerprint)
            if not missing[user]:
                heapq.heappush(ready[lines[user].stage.lane], user)
    return clock


def _table(lines: Sequence[Line]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("stage", "fingerprint", "", "needed by"):
        table.add_column(name)
    for name in ("tokens", "FLOPs", "time"):
        table.add_column(name, justify="right")
    for line in lines:
        cost = line.stage.cost
        tokens = f"{cost['tokens']:.2e}" if "tokens" in cost else ""
        flops = human(cost["flops"]) if "flops" in cost else ""
        state = "[green]cached[/]" if line.found else "[yellow]to run[/]"
        seconds = "" if line.found else "unknown" if line.seconds is None else _clock(line.seconds)
        who = Text(line.needed_by)  # no markup: a task may be called [red]
        table.add_row(line.stage.name, line.stage.fingerprint[:8], state, who, tokens, flops, seconds)
    return table


def _totals(lines: Sequence[Line], execution: Execution, at_once: int, price: float | None) -> list[str]:
    """Return lines with the total cost of the stages to run, and what these sums omit."""
    todo = [line for line in lines if not line.found]
    data, trainings = (sum(line.seconds or 0.0 for line in todo if line.stage.lane == lane) for lane in LANES)
    tokens, flops = (sum(line.stage.cost.get(name, 0) for line in todo) for name in ("tokens", "flops"))
    compute = execution.compute
    kind = "GPU" if compute.gpu else "CPU"
    hours = worker_hours(trainings, compute)
    words = [
        f"{len(lines) - len(todo)} of {len(lines)} stages cached, {len(todo)} to run: {tokens:.2e} tokens, "
        f"{human(flops)} FLOPs (6 x tokens x parameters)",
        f"about {_clock(wall_seconds(lines, at_once=at_once, overlap=compute.apart))} with {at_once} "
        f"training{'s' * (at_once > 1)} at a time"
        f"{'' if execution.side_by_side else ' (a cluster may have room for more)'}: {_clock(data)} of data stages and "
        f"{hours:.2f} {kind} hours of training{'' if price is None else f', cost {hours * price:.2f}'}",
    ]
    unknown = sum(line.seconds is None for line in todo)
    return words + ([f"not included: {unknown} stages of unknown duration"] if unknown else [])


def worker_hours(seconds: float, compute: Compute) -> float:
    """Return the GPU hours (CPU hours without GPUs) of some seconds of training."""
    return seconds / 3600 * compute.workers * compute.resources.get("GPU" if compute.gpu else "CPU", 1)


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
