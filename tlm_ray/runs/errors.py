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
        console.print(f"[bold red]error[/] {escape(storage.shown(str(error)) + _advice(str(error)))}")
        events.fail("run failed", error=str(error))
        raise SystemExit(2) from error


def _advice(error: str) -> str:
    """Return what may help where a store refuses a request."""
    if "ACCESS_DENIED" not in error:
        return ""
    if "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ:  # Arrow's client then goes on without a word, as nobody
        return (
            "; this process has a web identity (AWS_WEB_IDENTITY_TOKEN_FILE), without which requests go out when the "
            "token service gives no credentials: check the role, whom it trusts, and the way to the token service"
        )
    return "; give it credentials that may read and write there: AWS_ACCESS_KEY_ID with its secret, AWS_PROFILE, a role"
