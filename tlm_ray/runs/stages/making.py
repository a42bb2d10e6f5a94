"""Run stages: reuse those in the cache, run the others, in parallel where possible."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rich.markup import escape

from tlm_ray import events, metrics, storage
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.runs.stages.locks import locked
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import DIGITS, RECORD, Stage, rooms


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings of how stages run and where their results are stored.

    It changes no selection, and no training beyond rounding and dropout.
    """

    root: str
    """location of all results"""
    shared_root: bool = False
    """local paths are the same folders on every node of a cluster (NFS)"""
    shards: int = 0
    """corpus shards to search; 0 means one per CPU worker and 50,000 passages"""
    workers: int = 1
    """CPU workers of the data stages; 0 means all of the cluster's CPUs (see `preflight.fitted`)"""
    compute: Compute = field(default_factory=Compute)
    """resources of one training"""
    side_by_side: int = 1
    """trainings in parallel; 0 means as many as fit on the cluster (see `preflight.fitted`)"""
    autoscaling: bool = False
    """the cluster adds nodes on demand, so its present resources set no limit"""

    def __post_init__(self) -> None:
        for name in ("shards", "workers", "side_by_side"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}: must be 0 or more")
        if self.autoscaling and not self.workers:
            raise ValueError(
                "autoscaling: give workers too (--workers), the CPUs to retrieve with; there may be none yet"
            )
        if self.autoscaling and not self.side_by_side:
            raise ValueError(
                "autoscaling: give side_by_side too (--side-by-side), the trainings at a time; there may be no node yet"
            )


under_way = set[str]()  # folders of the stages that this process makes, also for a call that was interrupted
NOTHING_EXPECTED: Mapping[str, float] = MappingProxyType({})
Watch = Callable[[Stage, Mapping[str, Any]], None]


def make(
    stages: Sequence[Stage],
    root: str,
    *,
    side_by_side: int = 1,
    overlap: bool = True,
    watch: Watch | None = None,
    expected: Mapping[str, float] = NOTHING_EXPECTED,
    wait_for_locks: bool = False,
    known: Records | None = None,
) -> dict[str, dict[str, Any]]:
    """Run stages and all their dependencies; return the records by fingerprint.

    Results cached under `root` (see `Records.found`) are reused. To recompute a stage and all that
    depends on it, delete its folder. If a stage fails, all others that do not need it finish;
    then the first error is raised.

    overlap: trainings may run beside data stages. Without it data stages run first, because both need the same CPUs.
    A plain row needs one CPU, and runs beside both as soon as one is free.
    watch: called with each stage and its record. expected: estimated seconds by fingerprint, stored in the records
    beside the measured seconds. wait_for_locks: wait for a stage that another job is making, and reuse its result.
    known: the records under the root, if some have been read.
    """
    return _Making(stages, known or Records(root), side_by_side, overlap, watch, expected, wait_for_locks).run()


class _Making:
    """The state of one call of `make`: stages that wait, run, are done or failed."""

    def __init__(
        self,
        stages: Sequence[Stage],
        known: Records,
        side_by_side: int,
        overlap: bool,
        watch: Watch | None,
        expected: Mapping[str, float],
        wait_for_locks: bool,
    ):
        self.root, self.overlap, self.watch = known.root, overlap, watch
        self.expected, self.wait_for_locks = expected, wait_for_locks
        self.found = known.found(stages)
        self.waiting = needed(stages, self.found)
        self.kinds = {(stage.lane, stage.name) for stage in self.waiting}
        self.records: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, BaseException] = {}
        self.room = rooms(side_by_side)
        self.running: dict[Future, Stage] = {}
        # Delete records whose inputs are missing first, so that an interrupted run leaves no stale record. If all
        # inputs exist, the stage had no record when `found` looked; another job may have written one, or both, since.
        for stage in self.waiting:
            missing = [source for source in stage.inputs.values() if source.fingerprint not in self.found]
            if any(known.of(source) is None for source in missing):
                storage.delete(storage.join(stage.folder(self.root), RECORD))
                known.forget(stage)

    def run(self) -> dict[str, dict[str, Any]]:
        pool = ThreadPoolExecutor(sum(self.room.values()))
        try:
            self._start(pool)
            while self.running:
                finished, _ = wait(self.running, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._settle(future)
                self._drop()
                self._start(pool)
        finally:  # after an interrupt, running stages are abandoned, and the next run resumes them
            self._tell(waiting=[], running=[])
            pool.shutdown(wait=not self.running, cancel_futures=True)
        if self.failed:
            raise next(iter(self.failed.values()))
        assert not self.waiting, f"stages that nothing starts: {[stage.name for stage in self.waiting]}"
        return self.records

    def _drop(self) -> None:
        for stage in list(self.waiting):  # inputs first, so one pass drops all dependents of a failed stage
            errors = [self.failed[s.fingerprint] for s in stage.inputs.values() if s.fingerprint in self.failed]
            if errors:
                self.waiting.remove(stage)
                self.failed[stage.fingerprint] = errors[0]

    def _start(self, pool: ThreadPoolExecutor) -> None:
        for stage in list(self.waiting):
            if self._ready(stage) and self.room[stage.lane] and not self._after_data(stage):
                self.waiting.remove(stage)
                self.room[stage.lane] -= 1
                self.running[pool.submit(self._make, stage)] = stage
        self._tell(self.waiting, list(self.running.values()))

    def _make(self, stage: Stage) -> dict[str, Any]:
        record, expected_s = self.found.get(stage.fingerprint), self.expected.get(stage.fingerprint)
        return make_one(stage, self.root, expected_s=expected_s, wait_for_lock=self.wait_for_locks, record=record)

    def _tell(self, waiting: Sequence[Stage], running: Sequence[Stage]) -> None:
        for lane in self.room:
            metrics.STAGES_WAITING.set(sum(stage.lane == lane for stage in waiting), lane=lane)
        process, at_work = "trial" if _in_trial() else "driver", Counter((stage.lane, stage.name) for stage in running)
        for lane, name in self.kinds:
            metrics.STAGES_RUNNING.set(at_work[lane, name], lane=lane, stage=name, process=process)

    def _ready(self, stage: Stage) -> bool:
        """Return whether a stage can start: it is cached, so nothing reads its inputs, or all inputs are done."""
        return stage.fingerprint in self.found or all(s.fingerprint in self.records for s in stage.inputs.values())

    def _after_data(self, stage: Stage) -> bool:
        """Return whether a training must wait for data stages; no data stage ever reads a training."""
        pending = [*self.waiting, *self.running.values()]
        made = stage.fingerprint in self.found
        return not (self.overlap or made) and stage.lane == "train" and any(s.lane == "data" for s in pending)

    def _settle(self, future: Future) -> None:
        stage = self.running.pop(future)
        self.room[stage.lane] += 1
        error = future.exception()
        if isinstance(error, SystemExit) and _in_trial():  # how Ray Tune ends a trial early, within a report
            self.failed[stage.fingerprint] = error
            return
        if error is not None:
            console.print(f"[red]failed[/] {stage.name} {stage.fingerprint[:8]}: {escape(storage.shown(str(error)))}")
            metrics.STAGES.add(stage=stage.name, outcome="failed")
            events.fail("stage failed", **_words(stage), error=str(error))
            self.failed[stage.fingerprint] = error
            return
        self.records[stage.fingerprint] = future.result()
        if self.watch is not None:
            self.watch(stage, self.records[stage.fingerprint])


def _in_trial() -> bool:
    """Return whether a worker of Ray's makes stages, as in a sweep; a driver may have no Ray at all."""
    if "ray" not in sys.modules:
        return False
    from tlm_ray import ray_private

    return ray_private.is_worker()


def needed(stages: Sequence[Stage], found: Mapping[str, Any]) -> list[Stage]:
    """List the requested stages and the inputs of those that are not cached, inputs first."""
    wanted: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.fingerprint in wanted:
            return
        if stage.fingerprint not in found:
            for source in stage.inputs.values():
                visit(source)
        wanted[stage.fingerprint] = stage

    for stage in stages:
        visit(stage)
    return list(wanted.values())


def make_one(
    stage: Stage,
    root: str,
    *,
    expected_s: float | None = None,
    wait_for_lock: bool = False,
    record: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a stage's record; if it is missing, run the stage under its lock. Its inputs must be complete.

    expected_s: estimated seconds. record: its record, if it was read.
    """
    label = f"{stage.name:<10} {stage.fingerprint[:8]}"
    record = record or stage.record(root)
    if record is not None:
        console.print(f"[green]cached[/] {label}")
        return _found(stage, record)
    folder = stage.folder(root)
    if goes_on := folder in under_way:
        console.print(f"[yellow]waits[/]  {label}: an earlier call of this process goes on with it")
    with locked(root, stage.folder(""), wait=wait_for_lock or goes_on) as lock, _noted(folder):
        record = stage.record(root)  # another job may have run the stage while this one took the lock
        if record is not None:
            return _found(stage, record)
        console.print(f"[yellow]make[/]   {label}")
        events.tell("stage begun", **_words(stage))
        started = time.monotonic()
        facts = stage.make(folder, {name: source.folder(root) for name, source in stage.inputs.items()})
        record = {
            "recipe": stage.recipe,
            "facts": dict(facts),
            "cost": dict(stage.cost),
            "seconds": round(time.monotonic() - started, 3),
        }
        record |= {"parts": stage.parts} if stage.parts else {}
        record |= {} if expected_s is None else {"expected_s": round(expected_s, 1)}
        lock.check()
        storage.write_record(storage.join(folder, RECORD), record)
        _tidy(stage, folder)
    console.print(f"[bold]made[/]   {label} in {record['seconds']:.1f} s{_say(facts)}")
    metrics.STAGES.add(stage=stage.name, outcome="made")
    metrics.STAGE_SECONDS.observe(record["seconds"], stage=stage.name)
    events.tell("stage made", **_words(stage), seconds=record["seconds"])
    return record


@contextlib.contextmanager
def _noted(folder: str) -> Iterator[None]:
    under_way.add(folder)
    try:
        yield
    finally:
        under_way.discard(folder)


def _found(stage: Stage, record: dict[str, Any]) -> dict[str, Any]:
    metrics.STAGES.add(stage=stage.name, outcome="found")
    events.tell("stage found", **_words(stage))
    return record


def _words(stage: Stage) -> dict[str, str]:
    """Return the fields by which events are searched."""
    return {"stage": stage.name, "fingerprint": stage.fingerprint[:DIGITS], "task": stage.task}


def _tidy(stage: Stage, folder: str) -> None:
    """Delete a complete stage's scratch folder; if the store refuses, that costs space but no result."""
    if not stage.scratch:
        return
    try:
        storage.delete(storage.join(folder, stage.scratch))
    except OSError as error:
        console.print(f"[yellow]left[/]   {escape(storage.shown(f'{folder}/{stage.scratch}: {error}'))}")


def _say(facts: Mapping[str, Any]) -> str:
    words = [
        f"{value:,} {name}" for name, value in facts.items() if isinstance(value, int) and not isinstance(value, bool)
    ]
    words += [f"{name} {facts[name]:.1f}" for name in ("dev", "test") if isinstance(facts.get(name), float)]
    return ": " + ", ".join(words) if words else ""
