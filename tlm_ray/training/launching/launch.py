"""Run a training: in this process, as a Ray task, or on several workers of Ray Train; with retries and exact resume.

All three run the same function, `train`. Checkpoints stay in the stage's folder until its record is written, so a
resubmitted job resumes from them.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from tlm_ray import notices, parallel, ray_private, storage
from tlm_ray.console import console
from tlm_ray.process import tune_torch
from tlm_ray.training.launching.errors import TrainingStopped, WorkerFailed, cause_of
from tlm_ray.training.launching.failures import ended, failures_of, is_worth_another, may_pass
from tlm_ray.training.loop.progress import Follower, delete_note, followed
from tlm_ray.training.settings import CHECKPOINTS, MOVES, STOPPED, Job

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer

FREED_WITHIN_S = 5.0  # a controller's end is known within a second
RESIZE_EVERY_S = 60.0  # how often an elastic training looks for room for more workers


def train_stage(job: Job, *, followers: Sequence[Follower] = ()) -> dict[str, Any]:
    """Train a stage; transformers can open `job.folder/model`.

    Returns the record's facts: parameters, tokens, seconds, losses by step. TrainingStopped if it cannot continue.
    Errors that every attempt would meet, such as one in a recipe part's code, stop it without a retry.
    """
    facts = _here(job, followers) if job.compute.here else _elsewhere(job, followers)
    if STOPPED in facts:
        raise TrainingStopped(facts[STOPPED])
    for damage in facts.get("damaged_checkpoints", []):
        console.print(f"  {damage}: went on from the checkpoint before it", style="yellow", markup=False)
    return facts | {"compute": job.compute.parts}


def workers_of(job: Job) -> int:
    """Return the number of workers, at most one per row of a step."""
    return min(job.compute.workers, job.settings.schedule.batch_rows)


def _elsewhere(job: Job, followers: Sequence[Follower]) -> dict[str, Any]:
    """Train in other processes of the cluster; again where a node is about to go."""
    _check_sendable(job)
    launch = _alone if workers_of(job) == 1 else _together
    with followed(job.folder, job.settings.schedule.steps, followers):
        facts = launch(job)
        while MOVES in facts:  # resumes on another node; not a failure, so there is no limit
            folder = storage.shown(job.folder)
            console.print(f"  {folder}: leaves a node that is about to go, at step {facts[MOVES]:,}", style="dim")
            facts = launch(job)
    return facts


def _here(job: Job, followers: Sequence[Follower]) -> dict[str, Any]:
    """Train in this process, where a trial of Ray Tune allows no local mode; it does not leave the process' node.

    Followers are called by the training itself, so that a scheduler of Ray Tune can end it.
    """
    left = job.compute.max_failures
    try:
        while True:
            try:
                return _run(job, followers=followers)
            except WorkerFailed as error:
                if not left:
                    raise ended(job, [error]) from error
            left -= 1
    finally:
        delete_note(job.folder)


def _alone(job: Job) -> dict[str, Any]:
    """Train on one worker, in a Ray process that later tasks reuse.

    The next training there starts in 10 ms, because torch and transformers are already imported. With workers of its
    own, Ray Train starts a controller and a worker per training, which takes 5 s on idle cores and 15 s on busy ones.
    """
    compute = job.compute
    again: dict[str, Any] = {"retries": compute.max_failures, "again": [WorkerFailed]}
    try:
        return parallel.on_worker(train_alone, job, resources=dict(compute.resources), **again)
    except (ray.exceptions.RayTaskError, OSError) as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        raise ended(job, [cause]) from error


def train_alone(job: Job) -> dict[str, Any]:
    """Train in this process by Ray Train's local mode, which starts no other."""
    from ray.train import ScalingConfig  # imported here, because Ray Train takes 0.5 s, and torch 1.5 s
    from ray.train.torch import TorchTrainer

    logging.getLogger("ray.train").setLevel(logging.ERROR)  # it warns of its local mode
    trainer = TorchTrainer(partial(train, job), scaling_config=ScalingConfig(num_workers=0))  # type: ignore[arg-type]
    return trainer.fit().return_value  # type: ignore[attr-defined]  # annotations are Train V1's


def _together(job: Job) -> dict[str, Any]:
    """Train on several workers; after a lost one, or their lost controller, go on from the last checkpoint."""
    from ray.train import TrainingFailedError, WorkerGroupError

    left = job.compute.max_failures
    while True:
        try:
            return _trainer(job).fit().return_value  # type: ignore[attr-defined]
        except (TrainingFailedError, ray.exceptions.RayActorError) as error:
            of_workers = isinstance(error, WorkerGroupError)  # then the controller has freed their places
            ray_private.free_orphans(within_s=0.0 if of_workers else FREED_WITHIN_S)
            if not left or not is_worth_another(error):
                raise ended(job, failures_of(error)) from error
        left -= 1


def train(job: Job) -> dict[str, Any]:
    """Train in the process of one of Ray Train's workers; imports are local, because the controller needs none."""
    tune_torch()
    from ray.train import get_context
    from ray.train.torch import get_device

    context = get_context()
    with notices.own_notice() as is_leaving:
        return _run(
            job,
            rank=context.get_world_rank(),
            world=context.get_world_size(),
            device=str(get_device()) if job.compute.gpu else "cpu",
            is_leaving=is_leaving,
        )


def _run(
    job: Job,
    *,
    rank: int = 0,
    world: int = 1,
    device: str = "",
    is_leaving: Callable[[], bool] = lambda: False,
    followers: Sequence[Follower] = (),
) -> dict[str, Any]:
    """Train as a worker; raise TrainingStopped for errors that every attempt would meet, WorkerFailed for others."""
    from tlm_ray.training.loop.worker import Worker
    from tlm_ray.training.stage import run_job

    compute = job.compute
    worker = Worker(
        rank=rank,
        world=world,
        device=device or ("cuda:0" if compute.gpu else "cpu"),
        precision=job.settings.precision,
        micro_rows=compute.micro_rows,
        packed=compute.packed,
        sharded=compute.sharded and world > 1,
    )
    try:
        return run_job(job, worker, is_leaving=is_leaving, followers=followers)
    except ValueError as error:  # a refused setting, whose message needs no addition
        raise TrainingStopped(f"{job.folder}: {error}") from error
    except Exception as error:
        if may_pass(error):
            raise WorkerFailed(cause_of(error)) from error
        raise TrainingStopped(f"{job.folder}: training stopped by {cause_of(error)}; fix it and run again") from error


def _check_sendable(job: Job) -> None:
    """Raise TrainingStopped if the job cannot be serialised for a worker."""
    try:
        ray.cloudpickle.dumps(job)
    except Exception as error:
        raise TrainingStopped(
            f"{job.folder}: its parts cannot be sent to a worker ({cause_of(error)}); keep no locks, open files or "
            "connections in a part"
        ) from error


# Ray Train polls its workers every 2 s by default. Its patch of print would repeat each line.
RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # How long it waits for resources before it counts again how many elastic workers the cluster has room for. It
    # counts a lost node for up to 20 s. Without an elastic number of workers it waits again, for any time.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # see tlm_ray.notices
}


def _trainer(job: Job) -> "TorchTrainer":
    from ray import train as ray_train
    from ray.train.torch import TorchConfig, TorchTrainer  # imported here: torch takes 1.5 s

    from tlm_ray.training.launching.process_group import Gloo

    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(job.folder)
    compute, workers = job.compute, workers_of(job)
    return TorchTrainer(
        partial(train, job),  # type: ignore[arg-type]  # it returns the facts
        torch_config=TorchConfig(backend="nccl") if compute.gpu else Gloo(),
        scaling_config=ray_train.ScalingConfig(
            num_workers=(min(compute.least_workers, workers), workers) if compute.least_workers else workers,  # type: ignore[arg-type]
            use_gpu=compute.gpu,
            resources_per_worker=dict(compute.resources),
            elastic_resize_monitor_interval_s=RESIZE_EVERY_S,  # type: ignore[call-arg]
        ),
        run_config=ray_train.RunConfig(  # type: ignore[call-arg]
            name=CHECKPOINTS,
            storage_path=path,
            storage_filesystem=filesystem,
            # `_together` retries, because Ray Train would also retry what every attempt would meet
            failure_config=ray_train.FailureConfig(max_failures=0, controller_failure_limit=-1),  # type: ignore[call-arg]
            logging_config=ray_train.LoggingConfig(log_level="CRITICAL"),  # errors are raised; see `ended`
        ),
    )
