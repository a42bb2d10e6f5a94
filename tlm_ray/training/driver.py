"""Run a training on the cluster: with any number of workers, recovery from lost workers, and exact resume.

A single worker is a Ray task; several use Ray Train. Checkpoints stay in the stage's folder until its record is
written, so a resubmitted job resumes from them.
"""

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from tlm_ray import notices, parallel, storage
from tlm_ray.console import console
from tlm_ray.process import tune_torch
from tlm_ray.training.errors import TrainingStopped, WorkerFailed, cause_of
from tlm_ray.training.progress import Follower, followed
from tlm_ray.training.settings import CHECKPOINTS, MOVES, STOPPED, Job

# OSErrors that every worker would meet, so a retry is useless
SAME_EVERYWHERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
OF_A_GROUP = re.compile("gloo|nccl|process group", re.IGNORECASE)  # in errors of workers whose group lost a member

if TYPE_CHECKING:
    from tlm_ray.training.ray_trainer import RayTrainer
    from tlm_ray.training.worker import Worker


def train_stage(job: Job, *, followers: Sequence[Follower] = ()) -> dict[str, Any]:
    """Train a stage; transformers can open `job.folder/model`.

    Returns the record's facts: parameters, tokens, seconds, losses by step. TrainingStopped if it cannot continue.
    Errors that every attempt would meet, such as one in a recipe part's code, stop it without a retry.
    """
    facts = train_alone(job, followers) if job.compute.here else _train_elsewhere(job, followers)
    if STOPPED in facts:
        raise TrainingStopped(facts[STOPPED])
    for damage in facts.get("damaged_checkpoints", []):
        console.print(f"  {damage}: went on from the checkpoint before it", style="yellow", markup=False)
    return facts | {"compute": job.compute.parts}


def _train_elsewhere(job: Job, followers: Sequence[Follower]) -> dict[str, Any]:
    """Train on other processes of the cluster, again where a node is about to go."""
    _check_sendable(job)
    with followed(job.folder, job.settings.schedule.steps, followers):
        train = _alone if workers_of(job) == 1 else _together
        facts = train(job)
        while MOVES in facts:  # resumes on another node; not a failure, so there is no limit
            folder = storage.shown(job.folder)
            console.print(f"  {folder}: leaves a node that is about to go, at step {facts[MOVES]:,}", style="dim")
            facts = train(job)
    return facts


def workers_of(job: Job) -> int:
    """Return the number of workers, at most one per row of a step."""
    return min(job.compute.workers, job.settings.schedule.batch_rows)


def _alone(job: Job) -> dict[str, Any]:
    """Train on one worker, in a Ray process that later tasks reuse.

    The next training there starts in a second, because torch and transformers are already imported. Ray Train starts a
    controller and a worker per training, which takes 15 s while all cores train.
    """
    compute = job.compute
    again: dict[str, Any] = {"retries": compute.max_failures, "again": [WorkerFailed]}
    try:
        return parallel.on_worker(train_alone, job, resources=dict(compute.resources), **again)
    except (ray.exceptions.RayTaskError, OSError) as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        raise _ended(job, [cause]) from error


def train_alone(job: Job, followers: Sequence[Follower] = ()) -> dict[str, Any]:
    """Train in the process of the only worker; followers: called in it with the history, at each line of it."""
    from tlm_ray.training.worker import Worker

    settings, compute = job.settings, job.compute
    return _on_worker(
        job,
        Worker(
            device="cuda:0" if compute.gpu else "cpu",
            precision=settings.precision,
            micro_rows=compute.micro_rows,
            packed=compute.packed,
        ),
        followers,
    )


def _together(job: Job) -> dict[str, Any]:
    """Train on several workers; after losing the controller, retry once from the last checkpoint."""
    from ray import train  # imported here, because Ray Train takes 0.5 s

    from tlm_ray.training.failures import failures_of
    from tlm_ray.training.placement import free_orphans

    lost: Exception | None = None
    for _ in range(1 + min(1, job.compute.max_failures)):
        try:
            return _trainer(job).fit().return_value  # type: ignore[attr-defined]  # annotations are Train V1's
        except ray.exceptions.RayActorError as error:
            free_orphans()  # frees resources for the next attempt and for other trainings
            lost = error
        except train.TrainingFailedError as error:
            raise _ended(job, failures_of(error)) from error  # type: ignore[arg-type]
    raise TrainingStopped(f"{job.folder}: the training's controller was lost again and again ({lost})") from lost


def _train_together(job: Job) -> dict[str, Any]:
    """Train in the process of one of several workers; imports are local, because the controller needs none."""
    tune_torch()
    from ray import train
    from ray.train.torch import get_device

    from tlm_ray.training.worker import Worker

    context, compute = train.get_context(), job.compute
    return _on_worker(
        job,
        Worker(
            rank=context.get_world_rank(),
            world=context.get_world_size(),
            device=str(get_device()),
            precision=job.settings.precision,
            micro_rows=compute.micro_rows,
            packed=compute.packed,
            sharded=compute.sharded,
        ),
    )


def _on_worker(job: Job, worker: "Worker", followers: Sequence[Follower] = ()) -> dict[str, Any]:
    """Train; raise TrainingStopped for errors that every attempt would meet, WorkerFailed for others."""
    from tlm_ray.training.stage import run_job

    try:
        with notices.own_notice() as is_leaving:
            return run_job(job, worker, is_leaving=is_leaving, followers=followers)
    except ValueError as error:  # a refused setting, whose message needs no addition
        raise TrainingStopped(f"{job.folder}: {error}") from error
    except Exception as error:
        if _may_pass(error):
            raise WorkerFailed(cause_of(error)) from error
        raise TrainingStopped(f"{job.folder}: training stopped by {cause_of(error)}; mend it and run again") from error


def _may_pass(error: Exception) -> bool:
    """Return whether the next attempt may succeed despite an error."""
    import torch

    if isinstance(error, SAME_EVERYWHERE):
        return False
    faults = (OSError, MemoryError, torch.AcceleratorError, torch.distributed.DistError)
    of_ray = type(error).__module__.partition(".")[0] == "ray"
    of_a_group = isinstance(error, RuntimeError) and OF_A_GROUP.search(str(error)) is not None
    return isinstance(error, faults) or of_ray or of_a_group


def _check_sendable(job: Job) -> None:
    """Raise TrainingStopped if the job cannot be serialised for a worker."""
    try:
        ray.cloudpickle.dumps(job)
    except Exception as error:
        raise TrainingStopped(
            f"{job.folder}: its parts cannot be sent to a worker ({cause_of(error)}); keep no locks, open files or "
            "connections in a part"
        ) from error


def _ended(job: Job, failures: Sequence[BaseException]) -> TrainingStopped:
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


# Ray Train polls its workers every 2 s by default. Its patch of print would repeat each line.
RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # On a full cluster, wait for free resources or a new node, instead of failing after 60 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def _trainer(job: Job) -> "RayTrainer":
    from ray import train
    from ray.train.torch import TorchConfig  # imported here: torch takes 1.5 s

    from tlm_ray.training.process_group import Gloo
    from tlm_ray.training.ray_trainer import RayTrainer

    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(job.folder)
    compute = job.compute
    return RayTrainer(
        partial(_train_together, job),  # type: ignore[arg-type]  # it returns the facts
        torch_config=TorchConfig(backend="nccl") if compute.gpu else Gloo(),
        scaling_config=train.ScalingConfig(
            num_workers=workers_of(job), use_gpu=compute.gpu, resources_per_worker=dict(compute.resources)
        ),
        run_config=train.RunConfig(  # type: ignore[call-arg]
            name=CHECKPOINTS,
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=train.FailureConfig(  # type: ignore[call-arg]
                max_failures=compute.max_failures, controller_failure_limit=-1
            ),
            logging_config=train.LoggingConfig(log_level="ERROR"),
        ),
    )
