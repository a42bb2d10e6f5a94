"""Log events as JSON lines, if --log-json names a file; else nothing is written.

They go to the logger `tlm_ray` of Python's logging. Lines for the terminal are separate (`tlm_ray.console`).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from tlm_ray import storage

LOG = logging.getLogger("tlm_ray")
LOG.addHandler(logging.NullHandler())  # else Python prints warnings to stderr
STDERR = "-"


def tell(message: str, **facts: Any) -> None:
    """Log an event with a fixed message; variable parts, such as stage and fingerprint, are keyword facts."""
    LOG.info(message, extra={"facts": facts})


def warn(message: str, **facts: Any) -> None:
    """Log an event that the run continues after."""
    LOG.warning(message, extra={"facts": facts})


def fail(message: str, **facts: Any) -> None:
    """Log an event that fails a stage."""
    LOG.error(message, extra={"facts": facts})


def write_to(path: str) -> None:
    """Append this process's events to a file; `-` means stderr, "" nowhere.

    ValueError for an object store, which cannot append; OSError for a file that cannot be written.
    """
    if "://" in path:
        raise ValueError(
            f"--log-json {storage.shown(path)}: an object store cannot append; give a local file, or - for stderr"
        )
    for handler in [handler for handler in LOG.handlers if isinstance(handler.formatter, _JsonLines)]:
        LOG.removeHandler(handler)  # of an earlier call
        handler.close()
    if path:
        handler = logging.StreamHandler(sys.stderr) if path == STDERR else _file(path)
        handler.setFormatter(_JsonLines())
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)


def _file(path: str) -> logging.Handler:
    """Open the file now, so that one that cannot be written stops the run before any work."""
    try:
        return logging.FileHandler(path)
    except OSError as error:
        raise OSError(f"--log-json {path}: {error.strerror}; give a file in an existing folder") from error


class _JsonLines(logging.Formatter):
    """Formats one line per event: JSON escapes all but printable ASCII, and credentials are removed."""

    def format(self, record: logging.LogRecord) -> str:
        words = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(_shown(words | getattr(record, "facts", {})))


def _shown(value: Any) -> Any:
    """Return plain values whose texts hold no credentials."""
    if isinstance(value, dict):
        return {str(name): _shown(each) for name, each in value.items()}
    return value if isinstance(value, bool | int | float | None) else storage.shown(str(value))
