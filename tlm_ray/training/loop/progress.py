"""Report a running training's progress: its first worker writes a note, and the driver prints it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tlm_ray import events, metrics, storage
from tlm_ray.console import console

if TYPE_CHECKING:
    from tlm_ray.training.loop.checkpoints import Progress

NOTE = "progress.json"
NOTE_EVERY_S = 10.0
NOT_LOSSES = {"step", "learning_rate", "tokens_per_s", "padded", "waiting", "utilisation", "dev", "seconds"}
# Called on the driver every few seconds, with a training's complete history
Follower = Callable[[Sequence[Mapping[str, float]]], None]


class Ticker:
    """Writes a training's history to a note for the driver, sets its metrics, and calls followers in this process.

    step, tokens: progress of the checkpoint that it resumes from.
    """

    def __init__(self, folder: str, followers: Sequence["Follower"] = (), *, step: int = 0, tokens: int = 0):
        self.followers = list(followers)
        self.uri, self.last = storage.join(folder, NOTE), time.monotonic()
        self.stage, self.began_at, self.tokens = _words(folder)["stage"], step, tokens
        if step:
            metrics.RESUMED.add(stage=self.stage)

    def __call__(self, progress: "Progress") -> None:
        self._tell(progress)
        if time.monotonic() - self.last > NOTE_EVERY_S:
            self.last = time.monotonic()
            with contextlib.suppress(OSError):  # the note is for display only
                note = {"seconds": progress.seconds, "began_at": self.began_at, "history": progress.history}
                storage.write_json(self.uri, note)
        _tell(self.followers, progress.history)

    def _tell(self, progress: "Progress") -> None:
        newest = progress.history[-1]
        metrics.TOKENS.add(progress.tokens - self.tokens, stage=self.stage)
        self.tokens = progress.tokens
        for name, loss in _losses(newest).items():
            metrics.LOSS.set(loss, stage=self.stage, loss=name)
            lowest = min(entry[name] for entry in progress.history if name in entry)
            metrics.LOSS_RISE.set(loss - lowest, stage=self.stage, loss=name)
        if "utilisation" in newest:
            metrics.UTILISATION.set(newest["utilisation"], stage=self.stage)


@contextlib.contextmanager
def followed(folder: str, steps: int, followers: Sequence[Follower]) -> Iterator[None]:
    """Print a training's progress while it runs, and call its followers; they read the end from its record."""
    with contextlib.suppress(OSError):  # a killed run may have left a note of a later step than the one resumed from
        storage.delete(storage.join(folder, NOTE))
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder, steps, list(followers), done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        delete_note(folder)


def delete_note(folder: str) -> None:
    """Delete a training's note; failing to must not fail the training."""
    with contextlib.suppress(OSError):
        storage.delete(storage.join(folder, NOTE))


def _follow(folder: str, steps: int, followers: list[Follower], done: threading.Event) -> None:
    uri, seen, began_at = storage.join(folder, NOTE), 0, 0
    while not done.wait(NOTE_EVERY_S):
        with contextlib.suppress(OSError):
            note = storage.read_json(uri) if storage.exists(uri) else None
            if note and note["began_at"] != began_at:
                began_at = note["began_at"]
                events.warn("training resumed", **_words(folder), step=began_at)
            if note and (step := note["history"][-1]["step"]) > seen:
                seen = step
                _show(folder, note, steps)
                _tell(followers, note["history"])


def _show(folder: str, note: Mapping[str, Any], steps: int) -> None:
    words, newest = _words(folder), note["history"][-1]
    label = f"{words['stage']} {words['fingerprint'][:8]}"
    left = note["seconds"] / newest["step"] * (steps - newest["step"])
    losses = ", ".join(f"{name} {value:.2f}" for name, value in _losses(newest).items())
    console.print(
        f"  {label}: step {newest['step']:,} of {steps:,}, {losses}, about {left:.0f} s left",
        style="dim",
    )
    events.tell("training progress", **words, steps=steps, seconds_left=round(left), logged=newest)


def _words(folder: str) -> dict[str, str]:
    """Return the name and fingerprint of a folder's stage."""
    above, _, fingerprint = storage.without_query(folder).rstrip("/").rpartition("/")
    return {"stage": above.rpartition("/")[2], "fingerprint": fingerprint}


def _losses(entry: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in entry.items() if name not in NOT_LOSSES}


def _tell(followers: list[Follower], history: Sequence[Mapping[str, float]]) -> None:
    """Call followers, and drop those that fail, because a follower must not fail a training."""
    for follower in list(followers):
        try:
            follower(history)
        except Exception as error:
            followers.remove(follower)
            console.print(f"[yellow]follower {escape(repr(follower))} failed and is dropped[/]: {escape(repr(error))}")
