"""Plan a run before it starts: each stage (cached or to run), the trainings that need it, and its cost."""

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.report import human
from tlm_ray.runs.planning.estimates import stage_seconds
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, rooms, unique

MOST_NAMES = 2  # maximum number of names in a line of a plan
CPU_SHARE = "/sys/fs/cgroup/cpu.max"  # "max 100000", or microseconds of each period of as many


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


def plan_lines(wanted: Sequence[Wanted], records: Records, *, compute: Compute, assumed: bool = False) -> list[Line]:
    """List all stages, inputs first.

    compute: resources of one training. assumed: see `stage_seconds`.
    """
    stages = [one.stage for one in wanted]
    there, seconds = records.found(stages), stage_seconds(stages, records, compute, assumed=assumed)
    users = _users(wanted)
    return [
        Line(
            stage=stage,
            needed_by=_in_words(users[stage.fingerprint], wanted),
            found=stage.fingerprint in there,
            seconds=seconds.get(stage.fingerprint),
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


def show(wanted: Sequence[Wanted], execution: Execution, *, price: float | None = None) -> None:
    """Print the plan of making trainings, and its totals.

    price: per GPU hour, or CPU hour; before the first recorded training it is that of an assumed speed.
    """
    assumed = price is not None
    lines = plan_lines(wanted, Records(execution.root), compute=execution.compute, assumed=assumed)
    console.print(_table(lines))
    for words in _totals(lines, execution, price):
        console.print(words)


def side_by_side(execution: Execution) -> int:
    """Return the number of parallel trainings: as requested, or as many as this machine's CPUs allow."""
    compute = execution.compute
    if execution.side_by_side or compute.gpu or os.environ.get("RAY_ADDRESS"):
        return execution.side_by_side or 1
    return max(1, int(machine_cpus() // ((compute.resources.get("CPU", 1) or 1) * compute.workers)))


def machine_cpus() -> int:
    """Return the number of CPUs that this process may use, by its affinity and its container's limit."""
    allowed = len(os.sched_getaffinity(0))
    share = storage.read_bytes(CPU_SHARE).split() if storage.exists(CPU_SHARE) else [b"max"]
    return allowed if share[0] == b"max" else max(1, min(allowed, int(share[0]) // int(share[1])))


def wall_seconds(lines: Sequence[Line], *, at_once: int, overlap: bool) -> float:
    """Return the wall time of the stages to run: each after its inputs, and `rooms` of each lane at a time.

    overlap: whether trainings may run beside data stages. Ready stages start in the order of the lines, as in `make`.
    The CPU of a plain row is taken to be free.
    """
    places = {line.stage.fingerprint: place for place, line in enumerate(lines)}
    missing = [{s.fingerprint for s in line.stage.inputs.values()} & places.keys() for line in lines]
    users: dict[str, list[int]] = {}
    for place, inputs in enumerate(missing):
        for name in inputs:
            users.setdefault(name, []).append(place)
    room = rooms(at_once)
    ready: dict[str, list[int]] = {lane: [] for lane in room}
    for place, inputs in enumerate(missing):
        if not inputs:
            heapq.heappush(ready[lines[place].stage.lane], place)
    data, clock = sum(line.stage.lane == "data" for line in lines), 0.0
    running: list[tuple[float, int]] = []
    while running or any(ready.values()):
        for lane in room:
            while ready[lane] and room[lane] and (lane != "train" or overlap or not data):
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


def _totals(lines: Sequence[Line], execution: Execution, price: float | None) -> list[str]:
    """Return lines with the total cost of the stages to run, and what these sums omit."""
    todo = [line for line in lines if not line.found]
    tokens, flops = (sum(line.stage.cost.get(name, 0) for line in todo) for name in ("tokens", "flops"))
    unopened = any("tokens" in line.stage.cost and "flops" not in line.stage.cost for line in todo)
    words = [
        f"{len(lines) - len(todo)} of {len(lines)} stages cached, {len(todo)} to run: {tokens:.2e} tokens, "
        f"{human(flops)} FLOPs (6 x tokens x parameters){', without those of encoders not opened yet' * unopened}"
    ]
    if any(line.seconds is None and "flops" in line.stage.cost for line in todo):
        return [*words, "time: unknown until one training on these resources is recorded under the root"]
    unknown = sum(line.seconds is None for line in todo)
    omitted = [f"not included: {unknown} stages of unknown duration"] if unknown else []
    return [*words, _time(lines, execution, price), *omitted]


def _time(lines: Sequence[Line], execution: Execution, price: float | None) -> str:
    """Return a line with the time of the stages to run, and its price."""
    compute, at_once = execution.compute, side_by_side(execution)
    trainings = sum(line.seconds or 0.0 for line in lines if line.stage.lane == "train")
    others = sum(line.seconds or 0.0 for line in lines if line.stage.lane != "train")
    hours, kind = worker_hours(trainings, compute), "GPU" if compute.gpu else "CPU"
    return (
        f"about {_clock(wall_seconds(lines, at_once=at_once, overlap=compute.apart))} with {at_once} "
        f"training{'s' * (at_once > 1)} at a time"
        f"{'' if execution.side_by_side else ' (a cluster may have room for more)'}: {_clock(others)} of other stages "
        f"and {hours:.2f} {kind} hours of training{'' if price is None else f', cost {hours * price:.2f}'}"
    )


def worker_hours(seconds: float, compute: Compute) -> float:
    """Return the GPU hours (CPU hours without GPUs) of some seconds of training."""
    return seconds / 3600 * compute.workers * compute.resources.get("GPU" if compute.gpu else "CPU", 1)


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
