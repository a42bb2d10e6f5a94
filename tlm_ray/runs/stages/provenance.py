"""Collect the provenance of a report: command, commit, versions, hardware."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata

import ray

from tlm_ray import storage
from tlm_ray.report.story import Provenance

PACKAGES = ("tlm_ray", "torch", "ray", "transformers", "numpy", "scikit-learn")
SECRET = re.compile(r"(?:^|[-_])(?:token|password|passwd|secret|key|credentials?|auth)(?:$|[-_])", re.IGNORECASE)
HIDDEN = "***"
CPUINFO = "/proc/cpuinfo"


def describe_run(root: str) -> Provenance:
    """Return the provenance of a report that this process makes of results under a root."""
    return Provenance(
        command=shown_command(sys.argv),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit(),
        root=storage.shown(root),
        versions={"python": platform.python_version()} | versions(),
        hardware=hardware(),
    )


def shown_command(arguments: Sequence[str]) -> str:
    """Return a command line without secrets: credentials in URIs, and values of flags with names like passwords."""
    kept: list[str] = []
    is_after_secret = False
    for argument in arguments:
        name, sign, _ = argument.partition("=")
        is_value = not argument.startswith("--")
        is_secret = not is_value and SECRET.search(name.lstrip("-")) is not None
        if is_value:
            kept.append(HIDDEN if is_after_secret else argument)
        else:
            kept.append(f"{name}={HIDDEN}" if is_secret and sign else argument)
            is_after_secret = is_secret and not sign
    return shlex.join(["python", *map(storage.shown, kept)])


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that affect results."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources
            continue
    return found


def commit() -> str:
    """Return the git commit of the working folder, and whether files differ from it; "" outside a checkout."""
    head = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return f"{head[:12]}{' and changes since' if changed else ''}" if head else ""


def git(*arguments: str) -> str:
    """Return git's output in the working folder; "" outside a checkout."""
    try:
        found = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):  # git is missing, or this is no checkout
        return ""
    return found.stdout.strip()


def hardware() -> dict[str, str]:
    """Return the driver's processor and the cluster's resources, if connected to one."""
    driver = {"processor": f"{processor()}, {os.cpu_count()} CPUs"}
    if not ray.is_initialized():
        return driver
    has = ray.cluster_resources()
    kinds = [name.partition(":")[2] for name in has if name.startswith("accelerator_type:")]
    words = [f"{len(ray.nodes())} nodes", f"{has.get('CPU', 0):g} CPUs"]
    words += (
        [f"{has['GPU']:g} GPUs ({', '.join(kinds)})" if kinds else f"{has['GPU']:g} GPUs"] if has.get("GPU") else []
    )
    return driver | {"cluster": ", ".join(words)}


def processor() -> str:
    """Return the processor's name on Linux, else its architecture."""
    lines = storage.read_bytes(CPUINFO).decode().splitlines() if storage.exists(CPUINFO) else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()
