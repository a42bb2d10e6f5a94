"""Decide which failures of workers to retry, and what to say of those that end a training."""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import ray

from tlm_ray.training.launching.errors import TrainingStopped, WorkerFailed

if TYPE_CHECKING:
    from tlm_ray.training.settings import Job

# OSErrors that every worker would meet, so a retry is useless
SAME_EVERYWHERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
OF_A_GROUP = re.compile("gloo|nccl|process group", re.IGNORECASE)  # in errors of workers whose group lost a member


def may_pass(error: Exception) -> bool:
    """Return whether the next attempt may succeed despite a worker's error."""
    import torch

    if isinstance(error, SAME_EVERYWHERE):
        return False
    faults = (OSError, MemoryError, torch.AcceleratorError, torch.distributed.DistError)
    of_ray = type(error).__module__.partition(".")[0] == "ray"
    of_a_group = isinstance(error, RuntimeError) and OF_A_GROUP.search(str(error)) is not None
    return isinstance(error, faults) or of_ray or of_a_group


def failures_of(error: Exception) -> list[BaseException]:
    """Return the errors of Ray Train's workers, or the controller's if there are none."""
    if isinstance(error, ray.exceptions.RayActorError):
        return [WorkerFailed(f"its controller was lost: {type(error).__name__}")]
    return list(_of_workers(error)) or [getattr(error, "controller_failure", error)]


def is_worth_another(error: Exception) -> bool:
    """Return whether the next attempt may succeed after an error of Ray Train or the loss of its controller.

    Live workers raise TrainingStopped or WorkerFailed; Ray Train reports lost workers with other errors. What stopped
    one worker may be the loss of another. What stopped the controller, such as parts that no worker can open, would be
    met again.
    """
    if isinstance(error, ray.exceptions.RayActorError):
        return True
    found = _of_workers(error)
    stopped = any(isinstance(each, TrainingStopped) for each in found)
    lost = any(not isinstance(each, TrainingStopped | WorkerFailed) for each in found)
    return bool(found) and (lost or not stopped)


def _of_workers(error: Exception) -> Collection[BaseException]:
    return getattr(error, "worker_failures", {}).values()


def ended(job: "Job", failures: Sequence[BaseException]) -> TrainingStopped:
    """Return the error that ends a training, given the failures of its workers."""
    for error in failures:
        if isinstance(error, TrainingStopped):
            return TrainingStopped(str(error))
    cause = (str(failures[0]).strip() or type(failures[0]).__name__).splitlines()[-1]
    if isinstance(failures[0], ray.exceptions.RayError | ImportError | AttributeError):
        return TrainingStopped(
            f"{job.folder}: a worker could not open its parts ({cause}); install their module on every node"
        )
    return TrainingStopped(
        f"{job.folder}: training failed ({cause}); lost workers are replaced up to {job.compute.max_failures} times. "
        "Run again to continue at its last checkpoint"
    )
