"""How a script ends: errors that its user can mend are one message, an interrupt is a hint."""

import contextlib
import os
import sys
from collections.abc import Iterator

from rich.markup import escape

from tlm_ray import events, storage
from tlm_ray.console import console
from tlm_ray.runs.locks import StageLocked
from tlm_ray.training.errors import TrainingStopped


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Show errors that a user can mend as one message, without a traceback; the process ends with code 2.

    An interrupt ends it with code 130, at once: stages in progress are left as they are, to be continued.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/] run the same command again to go on")
        sys.stdout.flush()
        events.warn("run interrupted")
        os._exit(130)  # threads that wait for trainings would hold the process; Ray's processes end with it
    except (ValueError, OSError, ImportError, StageLocked, TrainingStopped) as error:
        console.print(f"[bold red]error[/] {escape(storage.shown(str(error)))}")
        events.fail("run failed", error=str(error))
        raise SystemExit(2) from error
