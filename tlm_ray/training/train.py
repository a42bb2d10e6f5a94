"""Both stages on Ray Train: any number of workers, recovery from lost workers, exact resume.

Checkpoints lie in the stage's own folder until its record is written, so a re-submitted job finds them there and
continues.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.callback import UserCallback

from tlm_ray import parallel, storage
from tlm_ray.process import tune_torch
from tlm_ray.training.schedules import CHECKPOINTS, LOSSES, NOTE, NOTE_EVERY_S, Geometry, Schedule


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a training runs on; it changes how fast, not what.

    workers: processes, each with `resources` (Ray's names; GPU: 1 makes it use one); a training whose steps have fewer
    rows takes one a row. max_failures: lost workers to
    recover from before giving up. micro_rows: rows that go through a worker's model at once, 0 for all of its share
    of a step; the gradients of a step are added up either way. packed: rows are laid one after another, not padded.
    sharded: weights, gradients and optimizer state are shared out over the workers (FSDP2), else copied to each (DDP).
    """

    workers: int = 1
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    max_failures: int = 3
    micro_rows: int = 0
    packed: bool = False
    sharded: bool = False

    def __post_init__(self) -> None:
        if self.micro_rows < 0:
            raise ValueError(f"micro_rows {self.micro_rows}: must be 0 (all rows of a step at once) or more")
        if self.workers < 1:
            raise ValueError(f"workers {self.workers}: a training needs 1 or more")

    @property
    def settings(self) -> dict[str, Any]:
        """What a worker needs to know of this."""
        return {"micro_rows": self.micro_rows, "packed": self.packed, "sharded": self.sharded}

    @property
    def apart(self) -> bool:
        """Whether workers need more than CPUs, so that they do not wait for what data stages hold."""
        return any(amount for name, amount in self.resources.items() if name != "CPU")

    @property
    def gpu(self) -> bool:
        """Whether workers train on GPUs."""
        return self.resources.get("GPU", 0) > 0


class TrainingStopped(RuntimeError):
    """A training that cannot go on, with the reason and the fix."""


def train_stage_one(
    folder: str,
    blocks: str,
    *,
    geometry: Geometry,
    start: str,
    architecture: str,
    schedule: Schedule,
    k: int,
    rho1: int | None,
    rho2: float,
    weighting: str,
    seed: int,
    precision: str,
    compute: Compute,
    callbacks: list[UserCallback],
) -> dict[str, Any]:
    """Train an encoder on general and task batches; `folder/model` opens as AutoModelForMaskedLM.

    start: the encoder to go on with, or architecture: that whose configuration random weights get; hub names or local
    folders, and without both the weights are random ones of `geometry`. blocks: a folder of the blocks stage.
    Returns the record's facts: parameters, tokens, seconds, losses by step.
    """
    config = {
        "folder": folder,
        "blocks": blocks,
        "geometry": geometry,
        "start": start,
        "architecture": architecture,
        "schedule": schedule,
        "k": k,
        "rho1": rho1,
        "rho2": rho2,
        "weighting": weighting,
        "seed": seed,
        "precision": precision,
    }
    return _fit(_stage_one, config, compute=compute, callbacks=callbacks)


def train_stage_two(
    folder: str,
    blocks: str,
    start: str,
    *,
    schedule: Schedule,
    seed: int,
    precision: str,
    compute: Compute,
    callbacks: list[UserCallback],
) -> dict[str, Any]:
    """Train on the task alone from `start` with a fresh head; the dev set chooses the checkpoint.

    start: a folder or hub name that opens as an encoder. `folder/model` opens as AutoModelForSequenceClassification.
    """
    config = {
        "folder": folder,
        "blocks": blocks,
        "start": start,
        "schedule": schedule,
        "seed": seed,
        "precision": precision,
    }
    return _fit(_stage_two, config, compute=compute, callbacks=callbacks)


def _stage_one(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs. Imported there: the controller, which passes this on, needs no transformers (1.5 s)."""
    tune_torch()
    from tlm_ray.training.ranks import stage_one

    return _stopped_by_values(stage_one, config)


def _stage_two(config: dict[str, Any]) -> dict[str, Any]:
    tune_torch()
    from tlm_ray.training.ranks import stage_two

    return _stopped_by_values(stage_two, config)


def _stopped_by_values(loop: Callable[[dict[str, Any]], dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Run a loop; a refused value, which every new worker would refuse again, is returned as the reason to stop."""
    try:
        return loop(config)
    except ValueError as error:
        return {"stopped": f"{config['folder']}: {error}"}


def _fit(
    loop: Callable[[dict[str, Any]], dict[str, Any]],
    config: dict[str, Any],
    *,
    compute: Compute,
    callbacks: list[UserCallback],
) -> dict[str, Any]:
    """Run a loop on every worker; a lost controller is started again, and goes on at the last checkpoint."""
    attempts = 1 + min(1, compute.max_failures)
    for attempt in range(attempts):
        try:
            with _shown(config["folder"], config["schedule"].steps):
                result = _trainer(loop, config | compute.settings, compute, callbacks).fit()
            break
        except ray.exceptions.RayActorError as error:
            if attempt + 1 == attempts:
                raise TrainingStopped(
                    f"{config['folder']}: the training's controller was lost {('once', 'twice')[attempt]} ({error})"
                ) from error
        except train.TrainingFailedError as error:
            raise TrainingStopped(
                f"{config['folder']}: training failed ({_cause(error)}); lost workers are replaced up to "
                f"{compute.max_failures} times. Run again to continue at its last checkpoint"
            ) from error
    facts = result.return_value  # type: ignore[attr-defined]  # Ray's annotations are those of Train V1
    if "stopped" in facts:
        raise TrainingStopped(facts["stopped"])
    for damage in facts.get("damaged_checkpoints", []):
        parallel.console.print(f"  {damage}: went on from the checkpoint before it", style="yellow", markup=False)
    return facts


# Ray Train polls its workers every 2 s by default, and each report waits for a poll; and a print would come twice.
RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # What a full cluster cannot place waits for room, or for a node to come, instead of failing after 60 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


@contextlib.contextmanager
def _shown(folder: str, steps: int) -> Iterator[None]:
    """Print how far a training is while it runs, from the note that its first worker leaves."""
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(folder, steps, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(OSError):  # a note left behind is worth no training
            storage.delete(storage.join(folder, NOTE))


def _show(folder: str, steps: int, done: threading.Event) -> None:
    stage, fingerprint = folder.rstrip("/").split("/")[-2:]
    uri, seen = storage.join(folder, NOTE), 0
    while not done.wait(NOTE_EVERY_S):
        with contextlib.suppress(OSError):
            note = storage.read_json(uri) if storage.exists(uri) else {"step": 0}
            if note["step"] > seen:
                seen = note["step"]
                left = note["seconds"] / seen * (steps - seen)
                losses = ", ".join(f"{name} {note[name]:.2f}" for name in LOSSES if name in note)
                parallel.console.print(
                    f"  {stage} {fingerprint[:8]}: step {seen:,} of {steps:,}, {losses}, about {left:.0f} s left",
                    style="dim",
                )


def _trainer(loop, config: dict[str, Any], compute: Compute, callbacks: list[UserCallback]) -> TorchTrainer:
    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(config["folder"])
    return TorchTrainer(
        loop,
        train_loop_config=config,
        torch_config=TorchConfig(backend="nccl" if compute.gpu else "gloo"),
        scaling_config=train.ScalingConfig(
            num_workers=min(compute.workers, config["schedule"].batch_rows),
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
