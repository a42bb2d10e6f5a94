"""Events for machines to search: a line of JSON each, where a file for them is named; else nothing is written.

They go through Python's logging, to the logger `tlm_ray`. The screen has lines of its own (`tlm_ray.console`).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from tlm_ray import storage

LOG = logging.getLogger("tlm_ray")
LOG.addHandler(logging.NullHandler())  # else Python prints warnings that nobody asked for
STDERR = "-"


def tell(message: str, **facts: Any) -> None:
    """Log an event by its fixed words; what differs between two of them are facts, such as stage and fingerprint."""
    LOG.info(message, extra={"facts": facts})


def warn(message: str, **facts: Any) -> None:
    """Log what a run goes on after."""
    LOG.warning(message, extra={"facts": facts})


def fail(message: str, **facts: Any) -> None:
    """Log what costs a stage."""
    LOG.error(message, extra={"facts": facts})


def write_to(path: str) -> None:
    """Append the events of this process to a file from now on, `-` for stderr, "" for nowhere.

    ValueError for a store, which cannot append; OSError for a file that cannot be written.
    """
    if "://" in path:
        raise ValueError(f"--log-json {storage.shown(path)}: no store can append; give a local file, or - for stderr")
    for handler in [handler for handler in LOG.handlers if isinstance(handler.formatter, _JsonLines)]:
        LOG.removeHandler(handler)  # of an earlier call
        handler.close()
    if path:
        handler = logging.StreamHandler(sys.stderr) if path == STDERR else _file(path)
        handler.setFormatter(_JsonLines())
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)


def _file(path: str) -> logging.Handler:
    """Open a file now: one that cannot be written is refused before any work."""
    try:
        return logging.FileHandler(path)
    except OSError as error:
        raise OSError(f"--log-json {path}: {error.strerror}; name a file in a folder that is there") from error


class _JsonLines(logging.Formatter):
    """One line an event: json escapes all but printable ASCII, and credentials in locations are hidden."""

    def format(self, record: logging.LogRecord) -> str:
        words = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(_shown(words | getattr(record, "facts", {})))


def _shown(value: Any) -> Any:
    """Return plain values with texts fit for a log."""
    if isinstance(value, dict):
        return {str(name): _shown(each) for name, each in value.items()}
    return value if isinstance(value, bool | int | float | None) else storage.shown(str(value))
