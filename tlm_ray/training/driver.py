"""A training on Ray Train: any number of workers, recovery from lost workers, exact resume.

Checkpoints lie in the stage's own folder until its record is written, so a re-submitted job finds them there and
continues.
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray import train
from ray.train.v2.api.callback import UserCallback

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.process import tune_torch
from tlm_ray.training.errors import TrainingStopped
from tlm_ray.training.placement import free_orphans
from tlm_ray.training.progress import shown
from tlm_ray.training.settings import CHECKPOINTS, Job

if TYPE_CHECKING:
    from tlm_ray.training.ray_trainer import RayTrainer


def train_stage(job: Job, *, callbacks: list[UserCallback]) -> dict[str, Any]:
    """Train a stage; `job.folder/model` opens in transformers.

    Returns the record's facts: parameters, tokens, seconds, losses by step. A lost controller is started again once,
    and goes on at the last checkpoint. TrainingStopped if the training cannot go on.
    """
    attempts = 1 + min(1, job.compute.max_failures)
    for attempt in range(attempts):
        try:
            with shown(job.folder, job.settings.schedule.steps):
                result = _trainer(job, callbacks).fit()
            break
        except ray.exceptions.RayActorError as error:
            free_orphans()  # its places, for which the next attempt, or another training, waits
            if attempt + 1 == attempts:
                raise TrainingStopped(
                    f"{job.folder}: the training's controller was lost {('once', 'twice')[attempt]} ({error})"
                ) from error
        except train.TrainingFailedError as error:
            raise TrainingStopped(
                f"{job.folder}: training failed ({_cause(error)}); lost workers are replaced up to "
                f"{job.compute.max_failures} times. Run again to continue at its last checkpoint"
            ) from error
    facts = result.return_value  # type: ignore[attr-defined]  # Ray's annotations are those of Train V1
    if "stopped" in facts:
        raise TrainingStopped(facts["stopped"])
    for damage in facts.get("damaged_checkpoints", []):
        console.print(f"  {damage}: went on from the checkpoint before it", style="yellow", markup=False)
    return facts


def _on_worker(job: Job) -> dict[str, Any]:
    """What each worker runs. Imported there: the controller, which passes this on, needs no transformers (1.5 s).

    A refused value, which every new worker would refuse again, is returned as the reason to stop.
    """
    tune_torch()
    from tlm_ray.training.ray_worker import run_job

    try:
        return run_job(job)
    except ValueError as error:
        return {"stopped": f"{job.folder}: {error}"}


# Ray Train polls its workers every 2 s by default, and each report waits for a poll; and a print would come twice.
RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # What a full cluster cannot place waits for room, or for a node to come, instead of failing after 60 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def _trainer(job: Job, callbacks: list[UserCallback]) -> "RayTrainer":
    from ray.train.torch import TorchConfig  # here, because it imports torch: 1.5 s of a driver that finds all results

    from tlm_ray.training.ray_trainer import RayTrainer

    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(job.folder)
    compute = job.compute
    return RayTrainer(
        partial(_on_worker, job),  # type: ignore[arg-type]  # which returns the facts
        torch_config=TorchConfig(backend="nccl" if compute.gpu else "gloo"),
        scaling_config=train.ScalingConfig(
            num_workers=min(compute.workers, job.settings.schedule.batch_rows),
            use_gpu=compute.gpu,
            resources_per_worker=dict(compute.resources),
        ),
        run_config=train.RunConfig(  # type: ignore[call-arg]
            name=CHECKPOINTS,
            storage_path=path,
            storage_filesystem=filesystem,
            callbacks=callbacks,  # type: ignore[arg-type]
            failure_config=train.FailureConfig(  # type: ignore[call-arg]
                max_failures=compute.max_failures, controller_failure_limit=-1
            ),
            logging_config=train.LoggingConfig(log_level="ERROR"),
        ),
    )


def _cause(error: BaseException) -> str:
    found = [str(e) for e in getattr(error, "worker_failures", {}).values()] or [str(error)]
    return (found[0].strip() or type(error).__name__).splitlines()[-1]
