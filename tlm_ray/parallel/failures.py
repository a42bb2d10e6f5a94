"""What a user is told when a worker process, a node or the room for a task is missing."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from tlm_ray import events
from tlm_ray.console import console

RETRIES = 3  # per task whose worker process or node was lost
LOOK_EVERY_S = 60.0  # between checks for the node that a task waits for
SHOWN = 200  # characters of an item in a message
OF_NODES = (
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.ObjectLostError,  # a large result was still on that node
    ray.exceptions.RuntimeEnvSetupError,  # the node's agent was lost first
)


def named(title: str, places: Sequence[int], items: Sequence[Mapping[str, Any]]) -> str:
    """Name some items of a work in a message."""
    numbers = f"part {places[0] + 1}" if len(places) == 1 else f"parts {places[0] + 1} to {places[-1] + 1}"
    return f"{title}, {numbers} of {len(items)} ({str(items[places[0]])[:SHOWN]})"


def lost(what: str) -> ChildProcessError:
    """Return the error of work whose process was lost on every retry."""
    return ChildProcessError(
        f"{what}: its worker process died again and again, most often for want of memory; use fewer workers at a time "
        "(for a training a lower --side-by-side, or --micro-rows 4) or machines with more memory, then run the same "
        "again"
    )


def raised(error: ray.exceptions.RayError, what: str) -> BaseException:
    """Return what to raise instead of Ray's error: the worker's own ValueError or OSError, or the reason of a loss."""
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, ValueError | OSError):
        return error.cause
    if isinstance(error, ray.exceptions.WorkerCrashedError | ray.exceptions.OutOfMemoryError):
        return lost(what)
    if isinstance(error, OF_NODES):
        return ChildProcessError(
            f"{what}: its node was lost again and again; bring nodes back that stay, then run the same again"
        )
    return error


@contextlib.contextmanager
def tells_of_missing_nodes(what: str, needs: Mapping[str, float]) -> Iterator[None]:
    """While some work runs, print once if no live node has the resources that it needs."""
    done = threading.Event()
    threading.Thread(target=_look_for_node, args=(what, needs, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _look_for_node(what: str, needs: Mapping[str, float], done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S) and ray.is_initialized():
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
            console.print(f"[yellow]waits[/]  {what}: no node of the cluster has {asked}; it starts when one joins")
            events.warn("waits for a node", work=what, resources=asked)
            return
