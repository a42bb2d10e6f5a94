"""Errors that end a training or a single attempt."""

import traceback
from pathlib import PurePath


class TrainingStopped(RuntimeError):
    """A training that cannot continue, with the reason and the fix."""


class WorkerFailed(RuntimeError):
    """An error that a retry may avoid: a fault of a device, disk, memory or network."""


def cause_of(error: BaseException) -> str:
    """Return an error in one line: its type, the first line of its message, and the line of code that raised it."""
    lines, frames = str(error).strip().splitlines(), traceback.extract_tb(error.__traceback__)
    place = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return ": ".join([type(error).__name__, *lines[:1]]) + place
