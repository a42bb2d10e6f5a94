"""Making stages: finds what is there, makes what is not, side by side where it can."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rich.markup import escape

from tlm_ray import events, metrics, storage
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.runs.stages.locks import locked
from tlm_ray.runs.stages.stage import DIGITS, RECORD, Stage, found


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How stages are made and where they lie: it changes no selection, and no training beyond rounding and dropout."""

    root: str
    """location of all results"""
    shared_root: bool = False
    """local paths are the same folders on every node of a cluster (NFS)"""
    shards: int = 0
    """parts that the corpus is searched in; 0 for one per CPU worker and 50,000 passages"""
    workers: int = 1
    """CPU workers of the data stages; 0 for as many as the cluster has (see `preflight.fitted`)"""
    compute: Compute = field(default_factory=Compute)
    """what one training runs on"""
    side_by_side: int = 1
    """trainings at once; 0 for as many as the cluster has room for (see `preflight.fitted`)"""
    autoscaling: bool = False
    """the cluster adds nodes on demand, so what it has now says nothing"""

    def __post_init__(self) -> None:
        for name in ("shards", "workers", "side_by_side"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}: must be 0 or more")
        if self.autoscaling and not self.workers:
            raise ValueError(
                "autoscaling: give workers too (--workers), the CPUs to retrieve with; there may be none yet"
            )


NOTHING_EXPECTED: Mapping[str, float] = MappingProxyType({})
Watch = Callable[[Stage, Mapping[str, Any]], None]
# more(records, errors), both by fingerprint, returns trainings to take on; none: no more, or not before another ends
More = Callable[[Mapping[str, dict[str, Any]], Mapping[str, BaseException]], Sequence[Stage]]


def make(
    stages: Sequence[Stage],
    root: str,
    *,
    side_by_side: int = 1,
    overlap: bool = True,
    watch: Watch | None = None,
    more: More | None = None,
    expected: Mapping[str, float] = NOTHING_EXPECTED,
) -> dict[str, dict[str, Any]]:
    """Make stages and all that they need; return the records by fingerprint.

    Stages cached under `root` are reused (`tlm_ray.runs.stages.stage.found`); to recompute one and all that depends on
    it, delete its folder. If a stage fails, those that do not need it still finish, then the first error is raised, so
    that nothing computed is lost. overlap: trainings may run beside data stages; without it data stages go first,
    because both would wait for the same CPUs. watch is called with each stage and its record. more is asked for further
    stages whenever fewer of those that it gave are to make than may run side by side. expected: seconds that stages
    were estimated to take, by fingerprint, which their records keep beside those that they took.
    """
    return _Making(stages, root, side_by_side, overlap, watch, more, expected).run()


class _Making:
    """One call of `make`: which stages wait, run and are done."""

    def __init__(
        self,
        stages: Sequence[Stage],
        root: str,
        side_by_side: int,
        overlap: bool,
        watch: Watch | None,
        more: More | None,
        expected: Mapping[str, float],
    ):
        self.root, self.overlap, self.watch, self.more = root, overlap, watch, more
        self.expected = expected
        self.found: dict[str, dict[str, Any]] = {}
        self.waiting: list[Stage] = []
        self.records: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, BaseException] = {}
        self.room = {"data": 1, "train": side_by_side}
        self.running: dict[Future, Stage] = {}
        self.asked: list[str] = []  # fingerprints of what `more` gave
        self._take(stages)

    def _take(self, stages: Sequence[Stage]) -> None:
        """Have stages wait, with all that they need, but for those that are there already."""
        known = {stage.fingerprint for stage in (*self.waiting, *self.running.values())}
        known |= self.records.keys() | self.failed.keys()
        self.found |= found(stages, self.root)
        fresh = [stage for stage in needed(stages, self.found) if stage.fingerprint not in known]
        # Delete records whose inputs are missing first, so that an interrupted run leaves no stale record. A stage
        # whose inputs are there had none when it was looked for; another job may have written it since.
        for stage in fresh:
            if any(source.fingerprint not in self.found for source in stage.inputs.values()):
                storage.delete(storage.join(stage.folder(self.root), RECORD))
        self.waiting += fresh

    def _ask(self, at_once: int) -> None:
        self._drop()
        while self.more is not None:
            ended = self.records.keys() | self.failed.keys()
            if sum(fingerprint not in ended for fingerprint in self.asked) >= at_once:
                return
            stages = self.more(self.records, self.failed)
            if not stages:
                return
            self.asked += [stage.fingerprint for stage in stages]
            self._take(stages)
            self._drop()

    def run(self) -> dict[str, dict[str, Any]]:
        at_once = self.room["train"]
        pool = ThreadPoolExecutor(sum(self.room.values()))
        try:
            self._ask(at_once)
            self._start(pool)
            while self.running:
                finished, _ = wait(self.running, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._settle(future)
                self._ask(at_once)
                self._start(pool)
        finally:  # interrupted: what runs is left behind, and continued by the next run
            self._tell(waiting=[], running=[])
            pool.shutdown(wait=not self.running, cancel_futures=True)
        if self.failed:
            raise next(iter(self.failed.values()))
        return self.records

    def _drop(self) -> None:
        for stage in list(self.waiting):  # inputs first, so one pass drops all that needs a failed stage
            errors = [self.failed[s.fingerprint] for s in stage.inputs.values() if s.fingerprint in self.failed]
            if errors:
                self.waiting.remove(stage)
                self.failed[stage.fingerprint] = errors[0]

    def _start(self, pool: ThreadPoolExecutor) -> None:
        for stage in list(self.waiting):
            if self._ready(stage) and self.room[stage.lane] and not self._after_data(stage):
                self.waiting.remove(stage)
                self.room[stage.lane] -= 1
                self.running[pool.submit(make_one, stage, self.root, self.expected.get(stage.fingerprint))] = stage
        self._tell(self.waiting, list(self.running.values()))

    def _tell(self, waiting: Sequence[Stage], running: Sequence[Stage]) -> None:
        for lane in self.room:
            metrics.STAGES_WAITING.set(sum(stage.lane == lane for stage in waiting), lane=lane)
            metrics.STAGES_RUNNING.set(sum(stage.lane == lane for stage in running), lane=lane)

    def _ready(self, stage: Stage) -> bool:
        """Found stages start at once: nothing reads their inputs, which may not be in the list at all."""
        return stage.fingerprint in self.found or all(s.fingerprint in self.records for s in stage.inputs.values())

    def _after_data(self, stage: Stage) -> bool:
        """Say whether a training must let data stages go first; no data stage ever reads a training."""
        pending = [*self.waiting, *self.running.values()]
        made = stage.fingerprint in self.found
        return not (self.overlap or made) and stage.lane == "train" and any(s.lane == "data" for s in pending)

    def _settle(self, future: Future) -> None:
        stage = self.running.pop(future)
        self.room[stage.lane] += 1
        error = future.exception()
        if error is not None:
            console.print(f"[red]failed[/] {stage.name} {stage.fingerprint[:8]}: {escape(storage.shown(str(error)))}")
            metrics.STAGES.add(stage=stage.name, outcome="failed")
            events.fail("stage failed", **_words(stage), error=str(error))
            self.failed[stage.fingerprint] = error
            return
        self.records[stage.fingerprint] = future.result()
        if self.watch is not None:
            self.watch(stage, self.records[stage.fingerprint])


def needed(stages: Sequence[Stage], found: Mapping[str, Any]) -> list[Stage]:
    """List the stages asked for and, of those that they need, all that one not found reads; inputs first."""
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


def make_one(stage: Stage, root: str, expected_s: float | None = None) -> dict[str, Any]:
    """Return a stage's record, making it under its lock if it is not there; its inputs must be complete.

    expected_s: seconds that it was estimated to take.
    """
    label = f"{stage.name:<10} {stage.fingerprint[:8]}"
    record = stage.record(root)
    if record is not None:
        console.print(f"[green]cached[/] {label}")
        return _found(stage, record)
    folder = stage.folder(root)
    with locked(root, stage.folder("")) as lock:
        record = stage.record(root)  # another job may have made it while this one came for the lock
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


def _found(stage: Stage, record: dict[str, Any]) -> dict[str, Any]:
    metrics.STAGES.add(stage=stage.name, outcome="found")
    events.tell("stage found", **_words(stage))
    return record


def _words(stage: Stage) -> dict[str, str]:
    """Return what events are searched by."""
    return {"stage": stage.name, "fingerprint": stage.fingerprint[:DIGITS], "task": stage.task}


def _tidy(stage: Stage, folder: str) -> None:
    """Delete what only making a stage needed. The stage is complete: a store that refuses costs space, no result."""
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
