"""The cluster's work in this process: for tests of what is made, not of where it is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import pytest

from tlm_ray import parallel


@contextmanager
def in_this_process() -> Iterator[None]:
    """Run what `tlm_ray.parallel` would send to Ray here, after the journey that it would make."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "each", _each)
        patch.setattr(parallel, "ray_tasks", _ray_tasks)
        patch.setattr(parallel, "on_worker", _on_worker)
        patch.setattr(ray, "put", lambda value: value)
        yield


def _sent(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


def _each(items, worker, *, arguments, workers, title, size="", gpus=0):
    with _threads_of_before():
        made = _sent(worker)(*map(_sent, arguments))
        for item in items:
            yield made(item)


def _ray_tasks(items, function, *, arguments, workers, title):
    return [_sent(function)(item, *map(_sent, arguments)) for item in items]


def _on_worker(function, *arguments, resources=None, retries=0, again=(), **options):
    with _threads_of_before():
        return _sent(function)(*_sent(arguments), **_sent(options))


@contextmanager
def _threads_of_before() -> Iterator[None]:
    """Undo what a worker's work says of torch's threads."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
