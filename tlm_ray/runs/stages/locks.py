"""Lock stages, so that two jobs never run the same stage at once.

A job writes a claim, a file of its own, and then lists the claims on that stage. It holds the lock if there is no
other claim. Of two jobs, the one that lists later sees both claims, after a pause of any length between its steps. No
file is ever overwritten by another job. So the lock only needs a store whose listings show all earlier writes: local
disks, S3, GCS. Two jobs that arrive together both withdraw and retry.

Only the store's clock decides a claim's age: its last change, compared with that of the claim just written. If a
heartbeat hangs, the claim may expire and another job may take the lock. So after a late heartbeat, the job lists the
claims again.
"""

import contextlib
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, repeat

from tlm_ray import events, storage
from tlm_ray.console import print_once
from tlm_ray.storage.listing import File, base_of, list_files, name_below

clock = time.monotonic  # by which a job detects that its own heartbeat was late
LOCKS = "locks"  # folder of the claims, below the root
BEAT_S = 10.0
STALE_S = 60.0  # a claim without a heartbeat for this long has expired
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # longest pauses before each retry
RUNS = "alive"  # in place of a process's start, where the system does not show it


class StageLocked(RuntimeError):
    """An error: another job is running this stage now."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The content of a claim's file: the process that claims a stage."""

    host: str
    """name of the machine"""
    space: str
    """scope of the process number: a boot of a machine and a namespace of processes"""
    pid: int
    """number of the process"""
    started: str
    """start of the process, in the system's unit, because process numbers are reused"""

    @classmethod
    def mine(cls) -> "Claim":
        """Return the claim of this process."""
        return cls(host=socket.gethostname(), space=_space(), pid=os.getpid(), started=_started(os.getpid()))

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to have ended."""
        # where /proc hides the processes of other users, that one runs is all that is known of it
        return self.space == _space() and _started(self.pid) not in (self.started, RUNS)

    @property
    def is_alive(self) -> bool:
        """Whether its process is known to run."""
        return self.space == _space() and _started(self.pid) == self.started


class Lock:
    """A stage's lock: created before the stage is claimed, and then kept by heartbeats."""

    def __init__(self, uri: str, folder: str, stage: str):
        self.uri, self.folder, self.stage = uri, folder, stage
        self.beaten = clock()  # start of the claim's writing, or of the last heartbeat that was in time

    def beat(self) -> None:
        """Send a heartbeat; a late one counts as a new claim, which is withdrawn if there is another."""
        began = clock()
        if not storage.exists(self.uri):  # the claim expired and was deleted; it is not written again
            return
        _beat(self.uri)
        if self._is_late and _others(self.uri, self.folder):
            storage.delete(self.uri)
        else:
            self.beaten = began

    @property
    def _is_late(self) -> bool:
        """Whether another job may have deleted the claim as expired; a heartbeat that hung would have restored it."""
        return clock() - self.beaten > STALE_S

    def check(self) -> None:
        """Raise StageLocked if the claim has expired, because this job sent no heartbeat for a minute."""
        if self._is_late:
            self.beat()
        if not storage.exists(self.uri):
            events.warn("lock lost", **_words(self.stage))
            raise StageLocked(
                f"stage {self.stage!r}: this job sent no heartbeat for {STALE_S:.0f} s, and another took over; what "
                "it has made is left to that one"
            )


@contextlib.contextmanager
def locked(root: str, stage: str, *, wait: bool = False) -> Iterator[Lock]:
    """Hold the lock of a stage; StageLocked names the job that has it, unless `wait`: then wait until it is free.

    stage: its folder below the root, such as "blocks/0123". A claim expires after 60 s without a heartbeat, or at once
    if its process ran on this machine and has ended. A claim whose process may have ended elsewhere is waited for until
    it expires, or until a heartbeat shows that its job lives.
    """
    name, _, fingerprint = stage.rpartition("/")
    folder = storage.join(root, LOCKS, name)
    uri = storage.join(folder, f"{fingerprint}-{uuid.uuid4().hex}.json")
    lock = Lock(uri, folder, stage)
    _take(lock, wait)
    events.tell("lock taken", **_words(stage))
    done = threading.Event()
    beating = threading.Thread(target=_keep_beating, args=(lock, done), daemon=True)
    beating.start()
    try:
        yield lock
    finally:
        done.set()
        beating.join()
        with contextlib.suppress(OSError):  # if the store is unreachable, the claim expires by itself
            storage.delete(uri)


def claimed(root: str) -> dict[str, tuple[File, Claim]]:
    """Return the claims under a root by their stages' folders below it, expired ones included."""
    base = base_of(storage.join(root, LOCKS))
    files = list_files(storage.join(root, LOCKS), ".json", missing_ok=True)
    read = {file: _read(file.uri) for file in files}
    return {_stage_of(name_below(base, file.uri)): (file, claim) for file, claim in read.items() if claim is not None}


def _take(lock: Lock, wait: bool) -> None:
    """Claim a stage; StageLocked if other claims remain after all retries, and none may be of a lost job."""
    began, first = clock(), dict[str, int]()
    for pause in chain(PAUSES_S, repeat(BEAT_S if wait else None)):
        others = _claim(lock)
        if not others:
            return
        lost = [claim for file, claim in others if _may_be_lost(file, claim, first)]
        if pause is None:
            if not lost or clock() - began >= STALE_S + BEAT_S:
                raise StageLocked(_held(lock.stage, *others[0]))
            print_once(storage.shown(_waits(lock.stage, lost[0])))
        events.tell("lock waited for", **_words(lock.stage), host=others[0][1].host, process=others[0][1].pid)
        time.sleep(random.uniform(0, BEAT_S if pause is None else pause))


def _claim(lock: Lock) -> list[tuple[File, Claim]]:
    """Write a claim and return the other valid ones; if there are any, withdraw it."""
    lock.beaten = clock()  # of this try: the first may be hours ago, and the next heartbeat would count as late
    _beat(lock.uri)
    try:
        others = _others(lock.uri, lock.folder)
    except BaseException:
        storage.delete(lock.uri)
        raise
    if others:
        storage.delete(lock.uri)
    return others


def _may_be_lost(file: File, claim: Claim, first: dict[str, int]) -> bool:
    """Return whether nothing shows that a claim's job lives: no process here, no heartbeat since it was first seen.

    first: the last change, in ns, of each claim when it was first seen; this one is added.
    """
    return first.setdefault(file.uri, file.modified_ns) == file.modified_ns and not claim.is_alive


def _others(uri: str, folder: str) -> list[tuple[File, Claim]]:
    """List the valid claims of other jobs, and delete expired ones."""
    files = [file for file in list_files(folder, ".json") if _stage_of(_name(file.uri)) == _stage_of(_name(uri))]
    mine = next((file for file in files if _name(file.uri) == _name(uri)), None)
    if mine is None:
        raise OSError(f"file {uri!r}: was written and is not listed; a root needs a store that lists what it holds")
    found = []
    for file in files:
        if file is mine or (claim := _read(file.uri)) is None:
            continue
        if claim.is_dead or mine.modified_ns - file.modified_ns > STALE_S * 1e9:
            with contextlib.suppress(FileNotFoundError):  # another job may have deleted it too
                storage.delete(file.uri)
        else:
            found.append((file, claim))
    return found


def _words(stage: str) -> dict[str, str]:
    name, _, fingerprint = stage.rpartition("/")
    return {"stage": name, "fingerprint": fingerprint}


def _read(uri: str) -> Claim | None:
    """Return a claim; None if it was withdrawn since it was listed."""
    try:
        values = storage.read_json(uri)
    except FileNotFoundError:
        return None
    try:
        return Claim(**values)
    except TypeError as error:
        raise ValueError(f"file {uri!r} is no claim of a job ({error}); delete this file") from error


def _name(uri: str) -> str:
    return storage.without_query(uri).rpartition("/")[2]


def _stage_of(claim: str) -> str:
    return claim.rpartition("-")[0]


def _keep_beating(lock: Lock, done: threading.Event) -> None:
    while not done.wait(BEAT_S):
        with contextlib.suppress(OSError):  # if the store is unreachable, the next heartbeat retries
            lock.beat()


def _beat(uri: str) -> None:
    storage.write_json(uri, asdict(Claim.mine()))


def _held(stage: str, file: File, claim: Claim) -> str:
    return (
        f"stage {stage!r} is being made by another job (host {claim.host}, process {claim.pid}); wait for it, or stop "
        f"it: its claim, {file.uri!r}, expires {STALE_S:.0f} s after its last heartbeat"
    )


def _waits(stage: str, claim: Claim) -> str:
    return (
        f"waits  {stage}: claimed by a job that may be lost (host {claim.host}, process {claim.pid}); its claim "
        f"expires {STALE_S:.0f} s after its last heartbeat"
    )


def _space() -> str:
    """Return an id of this machine's boot and this container's process namespace, or the machine's name."""
    try:
        boot = storage.read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Return the start of a process of this machine, in the system's unit; RUNS if hidden, "" if it has ended."""
    try:
        return storage.read_bytes(f"/proc/{pid}/stat").decode().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return _alive(pid)


def _alive(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return RUNS
    return RUNS
