"""Processes of a training on Ray that are killed while it goes on."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a stage that were written to the end, the newest last."""
    return sorted(file.parent for file in folder.glob("checkpoints/checkpoint_*/state.json"))


@contextmanager
def killed_in_turn(folder: Path, *victims: str) -> Iterator[None]:
    """Kill a process of each name, one after the other, each when the stage has a checkpoint that was not there before.

    AssertionError at the end if not all of them were there to be killed.
    """
    done, killed = threading.Event(), []

    def watch() -> None:
        seen: set[Path] = set()
        while len(killed) < len(victims) and not done.wait(0.02):
            if fresh := set(checkpoints(folder)) - seen:
                for process in psutil.Process().children(recursive=True):
                    if victims[len(killed)] in " ".join(process.cmdline()):
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(victims[len(killed)])
                        seen |= fresh
                        break

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    assert tuple(killed) == victims, f"killed {killed} of {victims}"
