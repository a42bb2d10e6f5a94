"""How a training ends that cannot go on, and what a worker may meet that another does not."""

import traceback
from pathlib import PurePath


class TrainingStopped(RuntimeError):
    """A training that cannot go on, with the reason and the fix."""


class WorkerFailed(RuntimeError):
    """What a worker met that the next attempt may not: a fault of its device, its disk, its memory or the network."""


def cause_of(error: BaseException) -> str:
    """Return an error in one line: its type, the first line of its message, and the line of code that raised it."""
    lines, frames = str(error).strip().splitlines(), traceback.extract_tb(error.__traceback__)
    place = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return ": ".join([type(error).__name__, *lines[:1]]) + place
