"""How far a running training is: a note that its first worker leaves, and the lines that the driver prints of it."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tlm_ray import storage
from tlm_ray.console import console

if TYPE_CHECKING:
    from tlm_ray.training.checkpoints import Progress

NOTE = "progress.json"
NOTE_EVERY_S = 10.0
NOT_LOSSES = {"step", "learning_rate", "tokens_per_s", "padded", "waiting", "utilisation", "dev", "seconds"}


class Ticker:
    """Leaves a note of how far a training is, for the driver to show."""

    def __init__(self, folder: str):
        self.uri, self.last = storage.join(folder, NOTE), time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        if time.monotonic() - self.last > NOTE_EVERY_S:
            self.last = time.monotonic()
            with contextlib.suppress(OSError):  # the note is for eyes only
                storage.write_json(self.uri, progress.history[-1] | {"seconds": progress.seconds})


@contextlib.contextmanager
def shown(folder: str, steps: int) -> Iterator[None]:
    """Print how far a training is while it runs."""
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(folder, steps, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(OSError):  # a note left behind is worth no training
            storage.delete(storage.join(folder, NOTE))


def _show(folder: str, steps: int, done: threading.Event) -> None:
    stage, fingerprint = folder.rstrip("/").split("/")[-2:]
    uri, seen = storage.join(folder, NOTE), 0
    while not done.wait(NOTE_EVERY_S):
        with contextlib.suppress(OSError):
            note = storage.read_json(uri) if storage.exists(uri) else {"step": 0}
            if note["step"] > seen:
                seen = note["step"]
                left = note["seconds"] / seen * (steps - seen)
                losses = ", ".join(f"{name} {value:.2f}" for name, value in note.items() if name not in NOT_LOSSES)
                console.print(
                    f"  {stage} {fingerprint[:8]}: step {seen:,} of {steps:,}, {losses}, about {left:.0f} s left",
                    style="dim",
                )
