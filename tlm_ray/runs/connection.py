"""How a script connects: to the cluster that the environment names, or to a Ray of its own."""

import logging
import os
import socket
from typing import Any

from tlm_ray import storage

ANSWER_S = 5.0


def ray_options() -> dict[str, Any]:
    """Return the arguments for `ray.init` with which an experiment's own lines are all that it prints.

    Ray's logs stay in its session folder. With RAY_ADDRESS set, as in a submitted job, the same call connects to the
    cluster. ConnectionError: nothing answers at the address that `ray.init()` would connect to; Ray itself would try
    for a quarter of an hour.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # C++ lines that no setting of Python's logging reaches
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", "3")  # Ray starts what ran out of memory again for ever
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address := os.environ.get("RAY_ADDRESS"):
        _refuse_unless_answered(address, "RAY_ADDRESS", "unset it to start a Ray of this script's own")
        return options
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    note = storage.join(folder, "ray", "ray_current_cluster")
    if storage.exists(note):  # `ray start` writes it, and a Ray that was killed leaves it behind
        _refuse_unless_answered(storage.read_bytes(note).decode().strip(), note, "delete this file if that Ray is gone")
    return options | {"include_dashboard": False}


def _refuse_unless_answered(address: str, source: str, instead: str) -> None:
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return  # auto, local, ray://...: Ray says quickly what is wrong with them
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConnectionError(f"{source} {address}: no Ray answers there ({error}); start it, or {instead}") from error
