"""Choose how a script connects to Ray: to the cluster in the environment, or to a Ray of its own."""

import contextlib
import logging
import os
import socket
from typing import Any

from tlm_ray import storage

ANSWER_S = 5.0


def ray_options() -> dict[str, Any]:
    """Return arguments for `ray.init` that keep Ray's logs off the terminal.

    Ray's logs stay in its session folder. If RAY_ADDRESS is set, as in a submitted job, the same call connects to the
    cluster. ConnectionError if no Ray answers at that address; Ray itself would retry for a quarter of an hour.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", "3")  # Ray retries tasks that ran out of memory forever by default
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address := os.environ.get("RAY_ADDRESS"):
        _refuse_unless_answered(address, "RAY_ADDRESS", "unset it to start a new Ray")
        return options
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    note = storage.join(folder, "ray", "ray_current_cluster")
    if storage.exists(note):  # `ray start` writes it, and a killed Ray leaves it behind
        _refuse_unless_answered(
            storage.read_bytes(note).decode().strip(), note, "delete this file if that Ray has ended"
        )
    if os.environ.get("RAY_AUTH_MODE") != "disabled":
        _close_token_folder()
    return options | {"include_dashboard": False}


def _close_token_folder() -> None:
    """Make ~/.ray accessible to this user alone, because Ray 2.60 leaves the token in it readable by all users."""
    with contextlib.suppress(OSError):  # of a home that cannot be written, where Ray writes no token either
        filesystem, path = storage.open_filesystem(os.path.expanduser("~/.ray"))
        filesystem.create_dir(path)
        os.chmod(path, 0o700)


def _refuse_unless_answered(address: str, source: str, instead: str) -> None:
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return  # auto, local, ray://...: Ray reports errors of these quickly
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConnectionError(f"{source} {address}: no Ray answers there ({error}); start it, or {instead}") from error
