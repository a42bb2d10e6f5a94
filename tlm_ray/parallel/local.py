"""Run the same work in this process, where no other may be asked: in a trial that holds the CPUs of its cluster."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray

_depth = 0  # of this process, whose stages run in several threads


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Have `each`, `ray_tasks` and `on_worker` call their functions directly, in any thread of this process."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def is_local() -> bool:
    """Return whether work is to run in this process."""
    return _depth > 0


def made(worker: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Return a worker of its arguments, which may be references."""
    return worker(*(ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments))
