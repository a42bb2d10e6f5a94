"""A hundred faults and more, drawn by seeds, while a tiny table is made on a cluster of this machine: is it the same?

    python tests/fault_plan.py                                      # all: three quarters of an hour
    python tests/fault_plan.py --kinds "node lost" "disk full"      # some kinds alone
    python tests/fault_plan.py --resume --log faults.jsonl          # what a log lacks

Each run makes the table of `fault_table.py` while some faults of one kind happen at random moments. Whatever fails is
started again by the same command, as its user would. At the end the table, all stages' files and what their records say
must be those of an undisturbed run, to the bit, times apart. Steps and stages that were made twice are counted.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from fault_cluster import LocalCluster
from fault_kinds import KINDS, Absent, Kind, World
from rich.console import Console
from rich.table import Table
from small_data import write_small
from waiting import wait_for

from tlm_ray import plain_errors, storage
from tlm_ray.storage.listing import base_of, list_files, name_below

MOMENTS = (0.05, 0.9)  # from a driver's first stage, or a fault, to the next: of an undisturbed run's share of each
ATTEMPTS = 12  # by the same command
DRIVER_S = 300  # that a driver may take
# what is told of a run, not of a result
TIMED = {"seconds", "wall_s", "expected_s", "tokens_per_s", "texts_per_s", "waiting", "utilisation", "sha256"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which faults."""

    kinds: list[str] = field(default_factory=list)
    """of faults; all if none is named"""
    runs: int = 0
    """of each kind, of two to five faults each; 0 for 50 faults with notice, and 10 of each other kind"""
    seed: int = 0
    """of the first run of a kind"""
    log: str = "faults.jsonl"
    """where outcomes go, a line a run"""
    resume: bool = False
    """leave out the runs that the log has"""


def main() -> None:
    plan = tyro.cli(Plan, description=__doc__)
    if unknown := [name for name in plan.kinds if name not in KINDS]:
        raise ValueError(f"--kinds {unknown[0]!r}: allowed are {', '.join(map(repr, KINDS))}")
    names = plan.kinds or list(KINDS)
    wanted = [(name, plan.seed + number) for name in names for number in range(plan.runs or KINDS[name].runs)]
    log, found = Path(plan.log), []
    if plan.resume and log.exists():
        found = [json.loads(line) for line in log.read_text().splitlines()]
        done = {(one["kind"], one["seed"]) for one in found}
        wanted = [one for one in wanted if one not in done]
    with laboratory() as (cluster, folder):
        references: dict[tuple[str, ...], Result] = {}
        for name, seed in wanted:
            outcome = run(name, seed, plan, cluster, folder, references)
            found.append(outcome)
            with log.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
            Console().print(outcome, soft_wrap=True)
    show([one for one in found if one["kind"] in names])
    if not all(one.get("identical") for one in found):
        raise SystemExit(1)


@contextlib.contextmanager
def laboratory() -> Iterator[tuple[LocalCluster, Path]]:
    """Yield a cluster, and a folder with data."""
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    os.environ |= {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    # what Ray would start before it is needed, on each new node
    os.environ |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
    here = Path(__file__).parent  # its modules are those of workers, too
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here.parent), str(here), os.environ.get("PYTHONPATH", "")])
    write_small(folder / "data")
    cluster = LocalCluster()
    try:
        yield cluster, folder
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is compared, and what it took."""

    table: Any
    stages: Mapping[str, Mapping[str, Any]]
    steps: int
    made: int
    """stages"""
    seconds: float


def run(
    name: str, seed: int, plan: Plan, cluster: LocalCluster, folder: Path, references: dict[tuple[str, ...], Result]
) -> dict[str, Any]:
    """Make the table under faults of a kind; return what came of it."""
    kind = KINDS[name]
    if kind.options not in references:
        references[kind.options] = undisturbed(World(
            cluster=cluster, folder=folder / f"reference-{len(references)}", data=str(folder / "data"),
            rng=random.Random(0), options=kind.options,
        ))  # fmt: skip
    expected = references[kind.options]
    rng = random.Random(f"{name} {seed}")
    world = World(
        cluster=cluster, folder=folder / f"run-{len(list(folder.iterdir()))}", data=str(folder / "data"), rng=rng,
        options=kind.options,
    )  # fmt: skip
    outcome: dict[str, Any] = {"kind": name, "seed": seed}
    try:
        found, landed, drivers = make(world, kind, expected.seconds)
    except (Absent, AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return outcome | {"faults": 0, "failed": str(error), "said": world.said[-3000:]}
    differing = differences(expected, found)
    return outcome | {
        "faults": landed,
        "identical": not differing,
        "differing": differing[:5],
        "drivers": drivers,
        "moved": world.said.count("leaves a node that is about to go"),
        "errors": [line for line in world.said.splitlines() if line.startswith("error ")],
        "steps": found.steps - expected.steps,
        "stages": found.made - expected.made,
        "seconds": round(found.seconds - expected.seconds, 1),
    } | ({"said": world.said[-3000:]} if differing else {})  # fmt: skip


def undisturbed(world: World) -> Result:
    found, _, drivers = make(world, Kind(strikes=()), DRIVER_S)
    if drivers > 1:
        raise RuntimeError(f"an undisturbed run failed:\n{world.said}")
    return found


def make(world: World, kind: Kind, usual_s: float) -> tuple[Result, int, int]:
    """Make the table while a kind of fault strikes; return it, the faults and the drivers that it took.

    usual_s: seconds of an undisturbed run.
    """
    world.folder.mkdir()
    world.root = world.seen = str(world.folder / "tlm")
    started, landed, drivers = time.monotonic(), 0, 0
    with contextlib.ExitStack() as ending:
        ending.enter_context(kind.setting(world))
        ending.callback(world.end)
        for _ in range(ATTEMPTS):
            driver, said = world.drive(), len(world.said)
            wait_for(lambda: driver.poll() is not None or "make " in world.said[said:], timeout_s=DRIVER_S)  # noqa: B023
            share = usual_s / max(1, len(kind.strikes))
            while landed < len(kind.strikes) and not ended(driver, share * world.rng.uniform(*MOMENTS)):
                landed += kind.strikes[landed](world)
            codes = [one.wait(DRIVER_S) for one in world.drivers]
            drivers += len(codes)
            world.drivers.clear()
            if not any(codes):
                return result(world, time.monotonic() - started), landed, drivers
    raise TimeoutError(f"{ATTEMPTS} drivers failed, the last with\n{world.said[-2000:]}")


def ended(driver: subprocess.Popen, seconds: float) -> bool:
    """Wait for some time, and say whether a driver ended meanwhile."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)
    return driver.poll() is not None


def result(world: World, seconds: float) -> Result:
    """Read what a run has made."""
    base = base_of(world.seen)
    files = {name_below(base, file.uri): file.uri for file in list_files(world.seen)}
    folders = {name.rpartition("/")[0] for name in files if name.endswith("/record.json")}
    stages = {
        folder: {name: content(uri) for name, uri in files.items() if name.startswith(f"{folder}/")}
        for folder in folders
    }
    table = untimed(json.loads((world.folder / "out" / "fault_table.json").read_text()))
    made = sum(line.startswith("make ") for line in world.said.splitlines())
    steps = (world.folder / "steps").stat().st_size
    return Result(table=table, stages=stages, steps=steps, made=made, seconds=seconds)


def content(uri: str) -> Any:
    """Return what a file says, times apart: a record's values, or any other file's sha256."""
    data = storage.read_bytes(uri)
    if uri.partition("?")[0].endswith("record.json"):
        return untimed(json.loads(data))
    return hashlib.sha256(data).hexdigest()


def untimed(value: Any) -> Any:
    """Leave out what is told of time, and the sums of what tells of it."""
    if isinstance(value, list):
        return [untimed(one) for one in value]
    if isinstance(value, dict):
        return {name: untimed(one) for name, one in value.items() if name not in TIMED}
    return value


def differences(expected: Result, found: Result) -> list[str]:
    """Name what is not the same: the table, stages that are there or not, and their files."""
    named = [] if expected.table == found.table else ["table"]
    named += sorted(expected.stages.keys() ^ found.stages.keys())
    for stage in expected.stages.keys() & found.stages.keys():
        one, other = expected.stages[stage], found.stages[stage]
        named += sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return named


def show(outcomes: list[dict[str, Any]]) -> None:
    """Print a row per kind."""
    table = Table("kind", "runs", "faults", "identical", "steps again", "stages again", "s more, each", box=None)
    for name in dict.fromkeys(one["kind"] for one in outcomes):
        runs = [one for one in outcomes if one["kind"] == name]
        same = [one for one in runs if one.get("identical")]
        sums = [sum(one.get(what, 0) for one in runs) for what in ("faults", "steps", "stages", "seconds")]
        faults, steps, stages, seconds = sums
        row = (len(runs), faults, sum(one["faults"] for one in same), steps, stages, f"{seconds / max(1, faults):.1f}")
        table.add_row(name, *map(str, row))
    Console().print(table)


if __name__ == "__main__":
    with plain_errors():
        main()
