"""A training on the cluster: any number of workers, recovery from lost workers, exact resume.

One worker is a Ray task, several are Ray Train's. Checkpoints lie in the stage's own folder until its record is
written, so a re-submitted job finds them there and continues.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from tlm_ray import notices, parallel, storage
from tlm_ray.console import console
from tlm_ray.process import tune_torch
from tlm_ray.training.errors import TrainingStopped
from tlm_ray.training.progress import Follower, followed
from tlm_ray.training.settings import CHECKPOINTS, MOVES, STOPPED, Job

if TYPE_CHECKING:
    from tlm_ray.training.ray_trainer import RayTrainer
    from tlm_ray.training.worker import Worker


def train_stage(job: Job, *, followers: Sequence[Follower] = ()) -> dict[str, Any]:
    """Train a stage; `job.folder/model` opens in transformers.

    Returns the record's facts: parameters, tokens, seconds, losses by step. TrainingStopped if it cannot go on.
    """
    with followed(job.folder, job.settings.schedule.steps, followers):
        train = _alone if workers_of(job) == 1 else _together
        facts = train(job)
        while MOVES in facts:  # to a node that stays; no failure, so that it may happen any number of times
            folder = storage.shown(job.folder)
            console.print(f"  {folder}: leaves a node that is about to go, at step {facts[MOVES]:,}", style="dim")
            facts = train(job)
    if STOPPED in facts:
        raise TrainingStopped(facts[STOPPED])
    for damage in facts.get("damaged_checkpoints", []):
        console.print(f"  {damage}: went on from the checkpoint before it", style="yellow", markup=False)
    return facts | {"compute": job.compute.parts}


def workers_of(job: Job) -> int:
    """Return how many workers a training takes: no more than a step has rows."""
    return min(job.compute.workers, job.settings.schedule.batch_rows)


def _alone(job: Job) -> dict[str, Any]:
    """Train on one worker, in a process that the cluster keeps for tasks.

    The next training finds it with torch and transformers imported and starts in a second; Ray Train starts a
    controller and a worker for each, which takes 15 s where all cores train.
    """
    try:
        return parallel.on_worker(
            train_alone, job, resources=dict(job.compute.resources), retries=job.compute.max_failures, again=True
        )
    except (ray.exceptions.RayTaskError, OSError) as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        raise _failed(job, cause) from error


def train_alone(job: Job) -> dict[str, Any]:
    """What the one worker of a training runs."""
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
    )


def _together(job: Job) -> dict[str, Any]:
    """Train on several workers; a lost controller is started again once, and goes on at the last checkpoint."""
    from ray import train  # here, because Ray Train takes 0.5 s

    from tlm_ray.training.placement import free_orphans

    lost: Exception | None = None
    for _ in range(1 + min(1, job.compute.max_failures)):
        try:
            return _trainer(job).fit().return_value  # type: ignore[attr-defined]  # annotations are Train V1's
        except ray.exceptions.RayActorError as error:
            free_orphans()  # its places, for which the next attempt, or another training, waits
            lost = error
        except train.TrainingFailedError as error:
            raise _failed(job, next(iter(getattr(error, "worker_failures", {}).values()), error)) from error
    raise TrainingStopped(f"{job.folder}: the training's controller was lost again and again ({lost})") from lost


def _train_together(job: Job) -> dict[str, Any]:
    """What each of several workers runs. Imported there: the controller, which passes this on, needs none of it."""
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


def _on_worker(job: Job, worker: "Worker") -> dict[str, Any]:
    """Train; a refused value, which every new worker would refuse again, is returned as the reason to stop."""
    from tlm_ray.training.stage import run_job

    try:
        with notices.own_notice() as is_leaving:
            return run_job(job, worker, is_leaving=is_leaving)
    except ValueError as error:
        return {STOPPED: f"{job.folder}: {error}"}


def _failed(job: Job, error: BaseException) -> TrainingStopped:
    cause = (str(error).strip() or type(error).__name__).splitlines()[-1]
    return TrainingStopped(
        f"{job.folder}: training failed ({cause}); lost workers are replaced up to {job.compute.max_failures} times. "
        "Run again to continue at its last checkpoint"
    )


# Ray Train polls its workers every 2 s by default; and a print would come twice.
RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # What a full cluster cannot place waits for room, or for a node to come, instead of failing after 60 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def _trainer(job: Job) -> "RayTrainer":
    from ray import train
    from ray.train.torch import TorchConfig  # here, because it imports torch: 1.5 s of a driver that finds all results

    from tlm_ray.training.process_group import Gloo
    from tlm_ray.training.ray_trainer import RayTrainer

    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(job.folder)
    compute = job.compute
    return RayTrainer(
        partial(_train_together, job),  # type: ignore[arg-type]  # which returns the facts
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
