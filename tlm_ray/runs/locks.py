"""One job per stage at a time: a lock file with a heartbeat, so that two jobs never train the same thing at once."""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator

from tlm_ray import storage

LOCK = "lock.json"
BEAT_S = 10.0
# Two jobs may both find no lock and write theirs; after this delay the last writer owns it.
SETTLE_LOCAL_S, SETTLE_S = 0.05, 1.0
STALE_S = 60.0  # a lock whose owner has not beaten for this long is taken over


class StageLocked(RuntimeError):
    """Another job is making this stage now."""


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a stage's folder; StageLocked names the job that has it.

    The lock of a process of this host that is gone is free at once; that of a process elsewhere is free after 60 s
    without a heartbeat.
    """
    uri = storage.join(folder, LOCK)
    _refuse_if_held(uri)
    mine = {
        "owner": uuid.uuid4().hex,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }
    _beat(uri, mine)
    time.sleep(SETTLE_LOCAL_S if storage.is_local(uri) else SETTLE_S)
    winner = storage.read_json(uri)
    if winner["owner"] != mine["owner"]:
        raise StageLocked(_held(uri, winner))
    done = threading.Event()
    beating = threading.Thread(target=_keep_beating, args=(uri, mine, done), daemon=True)
    beating.start()
    try:
        yield
    finally:
        done.set()
        beating.join()
        if _is_mine(uri, mine):
            storage.delete(uri)


def _keep_beating(uri: str, mine: dict, done: threading.Event) -> None:
    while not done.wait(BEAT_S):
        with contextlib.suppress(OSError):  # a store that is away for a beat is asked again at the next
            if _is_mine(uri, mine):
                _beat(uri, mine)


def _is_mine(uri: str, mine: dict) -> bool:
    """Say whether the lock is still this job's: one that slept past its time has lost it, and leaves it alone."""
    return storage.exists(uri) and storage.read_json(uri)["owner"] == mine["owner"]


def _beat(uri: str, mine: dict) -> None:
    storage.write_json(uri, mine | {"beat": time.time()})


def _refuse_if_held(uri: str) -> None:
    try:
        lock = storage.read_json(uri)
    except FileNotFoundError:
        return
    here = lock["host"] == socket.gethostname()
    alive = not here or _started(lock["pid"]) == lock["started"]
    if alive and time.time() - lock["beat"] < STALE_S:
        raise StageLocked(_held(uri, lock))


def _held(uri: str, lock: dict) -> str:
    return (
        f"stage {uri.removesuffix(LOCK)!r} is being made by another job (host {lock['host']}, process {lock['pid']}); "
        f"wait for it, or stop it: its lock falls {STALE_S:.0f} s after its last sign of life"
    )


def _started(pid: int) -> str:
    """Return when a process of this host started, in its own unit; empty if it is gone. A pid alone may be reused."""
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
