"""End a script with one message for errors that the user can fix, and a hint after an interrupt."""

import contextlib
import os
import sys
from collections.abc import Iterator

from rich.markup import escape

from tlm_ray import events, storage
from tlm_ray.console import console
from tlm_ray.runs.stages.locks import StageLocked
from tlm_ray.training.launching.errors import TrainingStopped

HTTP = ("httpx", "httpcore")  # libraries of the hub's client, whose errors are no OSError


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Show errors that a user can fix as one message, without a traceback, and exit with code 2.

    An interrupt exits with code 130 at once; unfinished stages are resumed by the next run.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/] run the same command again to resume")
        sys.stdout.flush()
        events.warn("run interrupted")
        os._exit(130)  # threads that wait for trainings would block the exit; Ray's processes end with this one
    except (ValueError, OSError, ImportError, StageLocked, TrainingStopped) as error:
        console.print(f"[bold red]error[/] {escape(storage.shown(str(error)) + _advice(str(error)))}")
        events.fail("run failed", error=str(error))
        raise SystemExit(2) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0].rstrip("2") not in HTTP:
            raise
        words = f"the Hugging Face hub cannot be reached ({error}); connect to a network, or give local files"
        console.print(f"[bold red]error[/] {escape(words)}")
        events.fail("run failed", error=words)
        raise SystemExit(2) from error


def _advice(error: str) -> str:
    """Return a hint for an error of a store that denies access, else ""."""
    if "ACCESS_DENIED" not in error:
        return ""
    if "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ:  # without a token Arrow's client silently continues unauthenticated
        return (
            "; this process has a web identity (AWS_WEB_IDENTITY_TOKEN_FILE), but the token service may have given no "
            "credentials: check the role, its trust policy, and the connection to the token service"
        )
    return "; set credentials that may read and write there: AWS_ACCESS_KEY_ID with its secret, AWS_PROFILE, or a role"
