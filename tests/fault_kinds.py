"""The kinds of faults of `fault_plan.py`: what each breaks, and where its runs take place."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_cluster import LocalCluster, kill_worker
from stores import Door, door, query_of, store
from waiting import wait_for

from tlm_ray import storage

REFUSED = 0.1  # of the requests to a store that fails
DISK = 24 << 20  # bytes of the disk that becomes full


class Absent(Exception):
    """What a kind of fault needs is not here."""


@dataclass(kw_only=True)
class World:
    """One run: what its faults may break, and what they found."""

    cluster: LocalCluster
    folder: Path
    data: str
    """where corpus and task lie"""
    rng: random.Random
    root: str = ""
    """where the driver finds results"""
    query: str = ""
    """of the location of the data"""
    seen: str = ""
    """where they are looked at afterwards, past all faults"""
    options: tuple[str, ...] = ()
    """of the driver"""
    environment: dict[str, str] = field(default_factory=dict)
    door: Door | None = None
    """to the store"""
    server: subprocess.Popen | None = None
    """that of MLflow"""
    drivers: list[subprocess.Popen] = field(default_factory=list)

    @property
    def said(self) -> str:
        """All that the drivers have printed."""
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def drive(self) -> subprocess.Popen:
        """Start a driver."""
        command = [
            sys.executable, str(Path(__file__).with_name("fault_table.py")), "--tasks", "topics", "--seeds", "1",
            "--task-root", f"{self.data}/tasks{self.query}", "--corpus", f"{self.data}/corpus{self.query}",
            "--root", self.root,
            "--out", str(self.folder / "out"), "--counted", str(self.folder / "steps"), "--shared-root",
            "--workers", "2", "--tracking-uri", f"sqlite:///{self.folder}/mlflow.db", *self.options,
        ]  # fmt: skip
        own = {"RAY_ADDRESS": self.cluster.cluster.address, "COLUMNS": "200"}
        with (self.folder / "log").open("ab") as log:
            driver = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, env=os.environ | own | self.environment,
                start_new_session=True,
            )  # fmt: skip
        self.drivers.append(driver)
        return driver

    def end(self) -> None:
        """Kill the drivers that are left."""
        for driver in self.drivers:
            kill(driver)


Strike = Callable[[World], bool]  # whether there was something to break


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A way in which things break."""

    strikes: tuple[Strike, ...]
    """the faults of a run, one after the other"""
    setting: Callable[[World], Any] = lambda world: contextlib.nullcontext()
    """a context in which its runs take place"""
    options: tuple[str, ...] = ()
    """of the driver"""
    runs: int = 2


def drain(world: World) -> bool:
    world.cluster.drain(world.cluster.some_node(world.rng), seconds=world.rng.uniform(5, 12))
    return True


def lose_node(world: World) -> bool:
    world.cluster.lose(world.cluster.some_node(world.rng))
    return True


def kill_some_worker(world: World) -> bool:
    return kill_worker("", world.rng)


def kill_controller(world: World) -> bool:
    return kill_worker("TrainController", world.rng)


def lose_all(world: World) -> bool:
    world.cluster.stop()
    with contextlib.suppress(subprocess.TimeoutExpired):  # some look for their head for a minute
        world.drivers[-1].wait(10)
    kill(world.drivers[-1])
    world.cluster.start()
    return True


def kill_driver(world: World) -> bool:
    kill(world.drivers[-1])
    return True


def start_another(world: World) -> bool:
    world.drive()
    return True


def take_store(world: World) -> bool:
    assert world.door is not None
    world.door.shut(world.rng.uniform(1, 30))
    return True


def hang_tracking(world: World) -> bool:
    assert world.server is not None
    os.killpg(world.server.pid, signal.SIGSTOP)
    time.sleep(world.rng.uniform(1, 6))
    os.killpg(world.server.pid, signal.SIGCONT)
    return True


def kill_tracking(world: World) -> bool:
    assert world.server is not None
    kill(world.server)
    return True


def fill_disk(world: World) -> bool:
    """Leave no byte for some seconds."""
    ballast = Path(world.root) / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    time.sleep(world.rng.uniform(0.5, 4))
    ballast.unlink()
    return True


def move_clock(world: World) -> bool:
    """Move the drivers' clock by up to two hours, ahead or back."""
    (world.folder / "clock").write_text(f"{world.rng.choice((-1, 1)) * world.rng.uniform(60, 7200):.0f}")
    return True


@contextlib.contextmanager
def failing_store(world: World) -> Iterator[None]:
    with store() as port, door(port, refused=REFUSED) as (world.door, through):
        place = f"s3://key:secret@bucket-{world.folder.name}"
        storage.copy_folder(world.data, f"{place}/data{query_of(port)}")
        world.data, world.query = f"{place}/data", through
        world.root, world.seen = f"{place}/tlm{through}", f"{place}/tlm{query_of(port)}"
        yield


@contextlib.contextmanager
def tracking_server(world: World) -> Iterator[None]:
    port = free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1",
        f"--backend-store-uri=sqlite:///{world.folder}/mlflow.db", f"--artifacts-destination={world.folder}/artifacts",
    ]  # fmt: skip
    own = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (world.folder / "server").open("wb") as log:
        world.server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=world.folder, env=os.environ | own, start_new_session=True
        )
    wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"))
    world.options += ("--tracking-uri", f"http://127.0.0.1:{port}")
    try:
        yield
    finally:
        kill(world.server)


@contextlib.contextmanager
def small_disk(world: World) -> Iterator[None]:
    world.root = world.seen = str(world.folder / "disk")
    Path(world.root).mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", world.root], capture_output=True)
    if mounted.returncode:
        raise Absent("a small disk can be mounted by root alone")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", world.root], check=True)


@contextlib.contextmanager
def moved_clock(world: World) -> Iterator[None]:
    source, library = Path(__file__).with_name("fault_clock.c"), world.folder / "clock.so"
    if shutil.which("cc") is None:
        raise Absent("a clock is moved by a library that is made of fault_clock.c, and there is no C compiler, cc")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    world.environment = {"LD_PRELOAD": str(library), "FAULT_CLOCK": str(world.folder / "clock")}
    yield


def kill(process: subprocess.Popen) -> None:
    """Kill a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=5).close()
        return True
    return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


SEVERAL = ("--train-workers", "2")
KINDS = {
    "drain with notice": Kind(strikes=(drain,) * 5, runs=10),
    "node lost": Kind(strikes=(lose_node,) * 5),
    "worker killed": Kind(strikes=(kill_some_worker,) * 5),
    "controller killed": Kind(strikes=(kill_controller,) * 2, options=SEVERAL, runs=6),
    "head and all lost": Kind(strikes=(lose_all,) * 5),
    "driver killed": Kind(strikes=(kill_driver,) * 5),
    "two drivers": Kind(strikes=(start_another,) * 2, runs=6),
    "store away": Kind(strikes=(take_store,) * 5, setting=failing_store),
    "disk full": Kind(strikes=(fill_disk,) * 5, setting=small_disk),
    "tracking away": Kind(strikes=(*(hang_tracking,) * 4, kill_tracking), setting=tracking_server),
    "clock moved": Kind(strikes=(move_clock,) * 5, setting=moved_clock),
    "one of each": Kind(strikes=(kill_some_worker, start_another, lose_node, kill_driver, drain), runs=1),
}
