"""Notices that a node is about to go, such as spot nodes get: Ray calls such a node draining, and gives it no new work.

`ray drain-node` tells Ray of one, and so does the SIGTERM that ends a pod. Ray Train watches for them with a process of
200 MB per training, and only for its own workers; asking Ray's control store takes a thread 0.3 ms.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import ray
from ray._private.state import state

LOOK_EVERY_S = 1.0


def draining() -> set[str]:
    """Return the ids of the nodes that are about to go."""
    return set(state.get_draining_nodes())


@contextlib.contextmanager
def own_notice() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether the node of this process is about to go; never, where there is no Ray."""
    given, done = threading.Event(), threading.Event()
    if ray.is_initialized():
        node = ray.get_runtime_context().get_node_id()
        threading.Thread(target=_watch, args=(node, given, done), daemon=True).start()
    try:
        yield given.is_set
    finally:
        done.set()


def _watch(node: str, given: threading.Event, done: threading.Event) -> None:
    while not done.is_set() and not given.is_set():
        if node in draining():
            given.set()
        done.wait(LOOK_EVERY_S)
