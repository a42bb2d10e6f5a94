"""The cluster's work in this process: for tests of what is made, not of where it is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from tlm_ray import parallel


@contextmanager
def in_this_process() -> Iterator[None]:
    """Run what `tlm_ray.parallel` and `train_stage` would send to Ray here, after the journey that it would make."""
    import ray

    from tlm_ray.training import driver

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "each", _each)
        patch.setattr(parallel, "ray_tasks", _ray_tasks)
        patch.setattr(parallel, "on_worker", _on_worker)
        patch.setattr(ray, "put", lambda value: value)
        patch.setattr(driver, "train_stage", _train_stage)
        yield


def _sent(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


def _each(items, worker, *, arguments, workers, title, size="", gpus=0):
    made = _sent(worker)(*map(_sent, arguments))
    for item in items:
        yield made(item)


def _ray_tasks(items, function, *, arguments, workers, title):
    return [_sent(function)(item, *map(_sent, arguments)) for item in items]


def _on_worker(function, *arguments, resources=None, **options):
    return _sent(function)(*_sent(arguments), **_sent(options))


def _train_stage(job, *, callbacks):
    """Train on one worker that has no Ray around it."""
    import torch

    from tlm_ray.training import ray_worker
    from tlm_ray.training.worker import Worker

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_worker, "_this_worker", lambda job: Worker(precision=job.settings.precision))
        patch.setattr(ray_worker, "broadcast_from_rank_zero", lambda value: value)
        patch.setattr(ray_worker, "train", SimpleNamespace(report=lambda metrics: None))
        facts = ray_worker.run_job(_sent(job))
    torch.set_num_threads(before)
    assert "stopped" not in facts, facts
    return facts
