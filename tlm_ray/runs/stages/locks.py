"""One job per stage at a time, so that two never train the same thing at once.

Who wants a stage writes a claim, a file of its own, and then lists the claims on that stage: it holds the stage if
there is no other. Of two jobs, the one that lists later sees both, however long either slept between its steps, and
nothing is ever overwritten; so listings that show what was written before (local disks, S3, GCS) are all that this
needs. Two that came at once both withdraw and try again. A claim's age is told by the clock of the store alone: when
its file changed last, against the one just written. A job whose beat hung for so long that its claim may have fallen
lists the claims again, as if it came anew: another may hold the stage by now.
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

from tlm_ray import events, storage
from tlm_ray.storage.listing import File, base_of, list_files, name_below

clock = time.monotonic  # by which a job knows that its own beat was late
LOCKS = "locks"  # below the root: the claims of what is being made
BEAT_S = 10.0
STALE_S = 60.0  # a claim whose owner has not beaten for this long counts no more
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # at most, before a job that met another comes again


class StageLocked(RuntimeError):
    """Another job is making this stage now."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who wants a stage, as its file says."""

    host: str
    """the machine's name"""
    space: str
    """where its process number means that process: a boot of a machine and a namespace of processes"""
    pid: int
    """its process"""
    started: str
    """when that started, in the system's unit: a number may be used again"""

    @classmethod
    def mine(cls) -> "Claim":
        """Return that of this process."""
        return cls(host=socket.gethostname(), space=_space(), pid=os.getpid(), started=_started(os.getpid()))

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be gone."""
        return self.space == _space() and _started(self.pid) != self.started


class Lock:
    """A stage's lock: made before it is taken, and held from then on."""

    def __init__(self, uri: str, folder: str, stage: str):
        self.uri, self.folder, self.stage = uri, folder, stage
        self.beaten = clock()  # when the last beat began that others saw in time

    def beat(self) -> None:
        """Send a heartbeat; one that comes too late makes a new claim, which holds if there is no other."""
        began = clock()
        if not storage.exists(self.uri):  # one that slept past its time has lost its claim, and leaves it so
            return
        _beat(self.uri)
        if self._is_late and _others(self.uri, self.folder):
            storage.delete(self.uri)
        else:
            self.beaten = began

    @property
    def _is_late(self) -> bool:
        """Whether another may have declared the claim void, which a beat that hung would have written again."""
        return clock() - self.beaten > STALE_S

    def check(self) -> None:
        """StageLocked if the claim fell, because this job sent no heartbeat for a minute."""
        if self._is_late:
            self.beat()
        if not storage.exists(self.uri):
            events.warn("lock lost", **_words(self.stage))
            raise StageLocked(
                f"stage {self.stage!r}: this job sent no heartbeat for {STALE_S:.0f} s, and another took over; what "
                "it has made is left to that one"
            )


@contextlib.contextmanager
def locked(root: str, stage: str) -> Iterator[Lock]:
    """Hold the lock of a stage, by its folder below a root, "blocks/0123"; StageLocked names the job that has it.

    The claim of a process of this machine that is gone is void at once, any other after 60 s without a heartbeat.
    """
    name, _, fingerprint = stage.rpartition("/")
    folder = storage.join(root, LOCKS, name)
    uri = storage.join(folder, f"{fingerprint}-{uuid.uuid4().hex}.json")
    lock = Lock(uri, folder, stage)
    _take(uri, folder, stage)
    events.tell("lock taken", **_words(stage))
    done = threading.Event()
    beating = threading.Thread(target=_keep_beating, args=(lock, done), daemon=True)
    beating.start()
    try:
        yield lock
    finally:
        done.set()
        beating.join()
        with contextlib.suppress(OSError):  # a store that is away: the claim falls by itself
            storage.delete(uri)


def claimed(root: str) -> dict[str, tuple[File, Claim]]:
    """Return who makes what under a root now, or did when it was lost, by the stages' folders below it."""
    base = base_of(storage.join(root, LOCKS))
    files = list_files(storage.join(root, LOCKS), ".json", missing_ok=True)
    read = {file: _read(file.uri) for file in files}
    return {_stage_of(name_below(base, file.uri)): (file, claim) for file, claim in read.items() if claim is not None}


def _take(uri: str, folder: str, stage: str) -> None:
    """Claim a stage; StageLocked if others claim it still after some pauses."""
    for pause in (*PAUSES_S, None):
        _beat(uri)
        try:
            others = _others(uri, folder)
        except BaseException:
            storage.delete(uri)
            raise
        if not others:
            return
        storage.delete(uri)
        if pause is None:
            raise StageLocked(_held(stage, *others[0]))
        events.tell("lock waited for", **_words(stage), host=others[0][1].host, process=others[0][1].pid)
        time.sleep(random.uniform(0, pause))


def _others(uri: str, folder: str) -> list[tuple[File, Claim]]:
    """List the claims of others that count; those that do not are deleted."""
    files = [file for file in list_files(folder, ".json") if _stage_of(_name(file.uri)) == _stage_of(_name(uri))]
    mine = next((file for file in files if _name(file.uri) == _name(uri)), None)
    if mine is None:
        raise OSError(f"file {uri!r}: was written and is not listed; a root needs a store that lists what it holds")
    found = []
    for file in files:
        if file is mine or (claim := _read(file.uri)) is None:
            continue
        if claim.is_dead or mine.modified_ns - file.modified_ns > STALE_S * 1e9:
            with contextlib.suppress(FileNotFoundError):  # another may have found it so too
                storage.delete(file.uri)
        else:
            found.append((file, claim))
    return found


def _words(stage: str) -> dict[str, str]:
    name, _, fingerprint = stage.rpartition("/")
    return {"stage": name, "fingerprint": fingerprint}


def _read(uri: str) -> Claim | None:
    """Return a claim, None if it was withdrawn since it was listed."""
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
        with contextlib.suppress(OSError):  # a store that is away for a beat is asked again at the next
            lock.beat()


def _beat(uri: str) -> None:
    storage.write_json(uri, asdict(Claim.mine()))


def _held(stage: str, file: File, claim: Claim) -> str:
    return (
        f"stage {stage!r} is being made by another job (host {claim.host}, process {claim.pid}); wait for it, or stop "
        f"it: its claim, {file.uri!r}, falls {STALE_S:.0f} s after its last heartbeat"
    )


def _space() -> str:
    """Return what tells this machine, since it booted, and this container's processes from others; else its name."""
    try:
        boot = storage.read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Return when a process of this machine started, in its own unit; empty if it is gone."""
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
        return "alive"
    return "alive"
