"""Both stages on Ray Train: any number of workers, recovery from lost workers, exact resume.

Checkpoints lie in the stage's own folder while it runs, so a re-submitted job finds them there and continues.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transformers
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.train.v2.api.callback import UserCallback
from transformers import AutoModelForMaskedLM

from tlm_ray import storage
from tlm_ray.corpus.scores import score
from tlm_ray.training.batches import Interleave
from tlm_ray.training.blocks import Blocks, read_blocks
from tlm_ray.training.checkpoints import Progress, load_weights
from tlm_ray.training.loop import Rank, Schedule, Training
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import Geometry, JointModel, bert_config
from tlm_ray.training.prediction import predict
from tlm_ray.training.tokenizer import load_tokenizer

CHECKPOINTS = "checkpoints"
MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a training runs on; it changes how fast, not what.

    workers: processes, each with `resources` (Ray's names; GPU: 1 makes it use one). max_failures: lost workers to
    recover from before giving up.
    """

    workers: int = 1
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    max_failures: int = 3

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers {self.workers}: a training needs 1 or more")

    @property
    def gpu(self) -> bool:
        """Whether workers train on GPUs."""
        return self.resources.get("GPU", 0) > 0


class TrainingStopped(RuntimeError):
    """A training that cannot go on, with the reason and the fix."""


def train_stage_one(
    folder: str, blocks: str, *, geometry: Geometry, schedule: Schedule, k: int, rho1: int, rho2: float, weighting: str,
    seed: int, precision: str, compute: Compute, callbacks: list[UserCallback],
) -> dict[str, Any]:
    """Train an encoder from random weights on general and task batches; `folder/model` opens as AutoModelForMaskedLM.

    blocks: a folder of the blocks stage. Returns the record's facts: parameters, tokens, seconds, losses by step.
    """
    config = {
        "folder": folder, "blocks": blocks, "geometry": geometry, "schedule": schedule, "k": k, "rho1": rho1,
        "rho2": rho2, "weighting": weighting, "seed": seed, "precision": precision,
    }
    return _fit(_stage_one_rank, config, compute=compute, callbacks=callbacks)


def train_stage_two(
    folder: str, blocks: str, start: str, *, schedule: Schedule, seed: int, precision: str,
    compute: Compute, callbacks: list[UserCallback],
) -> dict[str, Any]:
    """Train on the task alone from `start` with a fresh head; the dev set chooses the checkpoint.

    start: a folder or hub name that opens as an encoder. `folder/model` opens as AutoModelForSequenceClassification.
    """
    config = {
        "folder": folder, "blocks": blocks, "start": start, "schedule": schedule, "seed": seed,
        "precision": precision,
    }
    return _fit(_stage_two_rank, config, compute=compute, callbacks=callbacks)


def _fit(
    loop: Callable[[dict[str, Any]], dict[str, Any]], config: dict[str, Any], *, compute: Compute, callbacks: list[UserCallback]
) -> dict[str, Any]:
    """Run a loop on every worker; a lost controller is started again, and goes on at the last checkpoint."""
    attempts = 1 + min(1, compute.max_failures)
    for attempt in range(attempts):
        try:
            result = _trainer(loop, config, compute, callbacks).fit()
            break
        except ray.exceptions.RayActorError as error:
            if attempt + 1 == attempts:
                raise TrainingStopped(f"{config['folder']}: the training's controller was lost twice ({error})") from error
        except train.TrainingFailedError as error:
            raise TrainingStopped(
                f"{config['folder']}: training failed after {compute.max_failures} restarts; run again to continue at its last checkpoint. Cause: {_cause(error)}"
            ) from error
    facts = result.return_value
    if "stopped" in facts:
        raise TrainingStopped(facts["stopped"])
    storage.delete(storage.join(config["folder"], CHECKPOINTS))
    return facts


# Ray Train polls its workers every 2 s by default, and each report waits for a poll; and a print would come twice.
RAY_TRAIN_SETTINGS = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_TRAIN_ENABLE_PRINT_PATCH": "0", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}


def _trainer(loop, config: dict[str, Any], compute: Compute, callbacks: list[UserCallback]) -> TorchTrainer:
    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    filesystem, path = storage.open_filesystem(config["folder"])
    return TorchTrainer(
        loop,
        train_loop_config=config,
        torch_config=TorchConfig(backend="nccl" if compute.gpu else "gloo"),
        scaling_config=train.ScalingConfig(
            num_workers=compute.workers, use_gpu=compute.gpu, resources_per_worker=dict(compute.resources)
        ),
        run_config=train.RunConfig(
            name=CHECKPOINTS,
            storage_path=path,
            storage_filesystem=filesystem,
            callbacks=callbacks,
            failure_config=train.FailureConfig(max_failures=compute.max_failures, controller_failure_limit=3),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
            logging_config=train.LoggingConfig(log_level="ERROR"),
        ),
    )


def _cause(error: BaseException) -> str:
    found = [str(e) for e in getattr(error, "worker_failures", {}).values()] or [str(error)]
    return found[0].strip().splitlines()[-1]


def _this_rank(precision: str) -> Rank:
    """Describe this worker; CPU arithmetic is one thread a CPU of its share, so that results do not vary."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    context = train.get_context()
    device = get_device()
    if device.type == "cpu":
        torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
    return Rank(rank=context.get_world_rank(), world=context.get_world_size(), device=str(device), precision=precision)


def _stage_one_rank(config: dict[str, Any]) -> dict[str, Any]:
    """Stage one on one worker."""
    rank, blocks = _this_rank(config["precision"]), config["blocks"]
    facts = storage.read_json(storage.join(blocks, "facts.json"))
    general = read_blocks(storage.join(blocks, "general.arrow")).cut(config["k"]) if config["rho1"] else None
    with storage.folder_for_reading(storage.join(blocks, "tokenizer")) as folder:
        tokenizer = load_tokenizer(folder)
    pad_id = tokenizer.pad_token_id
    batches = Interleave(
        general=general, task=read_blocks(storage.join(blocks, "train.arrow")), rho1=config["rho1"],
        batch_rows=config["schedule"].batch_rows, seed=config["seed"], pad_id=pad_id, rank=rank.rank, world=rank.world,
        masking=Masking(
            mask_id=tokenizer.mask_token_id, vocabulary=len(tokenizer), special_ids=tuple(tokenizer.all_special_ids)
        ),
    )
    bert = bert_config(config["geometry"], vocabulary=len(tokenizer), pad_id=pad_id, labels=tuple(facts["labels"]))
    model = JointModel.from_scratch(bert, seed=config["seed"])
    training = Training(model, batches, config["schedule"], rank, rho2=config["rho2"], weighting=config["weighting"])
    return _run(training, config["folder"], lambda path: _export_mlm(model, tokenizer, path))


def _stage_two_rank(config: dict[str, Any]) -> dict[str, Any]:
    """Stage two on one worker."""
    rank, blocks = _this_rank(config["precision"]), config["blocks"]
    facts = storage.read_json(storage.join(blocks, "facts.json"))
    with storage.folder_for_reading(storage.join(blocks, "tokenizer")) as folder:
        tokenizer = load_tokenizer(folder)
    labels = tuple(facts["labels"])
    if storage.exists(config["start"]):
        with storage.folder_for_reading(config["start"]) as folder:
            model = JointModel.from_checkpoint(folder, labels=labels, seed=config["seed"])
    else:
        model = JointModel.from_checkpoint(config["start"], labels=labels, seed=config["seed"])
    batches = Interleave(
        general=None, task=read_blocks(storage.join(blocks, "train.arrow")), rho1=0, masking=None,
        batch_rows=config["schedule"].batch_rows, seed=config["seed"], pad_id=tokenizer.pad_token_id,
        rank=rank.rank, world=rank.world,
    )
    dev = read_blocks(storage.join(blocks, "dev.arrow"))

    def evaluate(model: JointModel) -> float:
        logits = predict(model, dev, pad_id=tokenizer.pad_token_id, rank=rank)
        return score(facts["metric"], dev.labels, logits.argmax(axis=1))

    training = Training(model, batches, config["schedule"], rank, evaluate=evaluate, keep_best=True)
    return _run(training, config["folder"], lambda path: _export_classifier(model, tokenizer, path))


def _run(training: Training, folder: str, export: Callable[[Path], None]) -> dict[str, Any]:
    """Resume if there is a checkpoint, train to the end, export on rank 0, return the facts of the run."""
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as path:
            training.resume(Path(path))
    try:
        progress = training.run(_report)
    except FloatingPointError as error:  # the same on every rank and every retry: stop at once
        return {"stopped": f"{folder}: {error}"}
    if training.rank.rank == 0:
        with storage.folder_for_writing(storage.join(folder, MODEL)) as path:
            export(path)
    return _facts(training, progress)


def _report(progress: Progress, metrics: dict[str, Any], save: Callable[[Path], None] | None) -> None:
    """Hand metrics, the history so far and, on rank 0, a checkpoint to Ray Train."""
    metrics = metrics | {"history": progress.history}
    if save is None or train.get_context().get_world_rank() != 0:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def _facts(training: Training, progress: Progress) -> dict[str, Any]:
    facts = {
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "steps": progress.step,
        "tokens": progress.tokens * training.rank.world,
        "seconds": progress.seconds,
        "history": progress.history,
    }
    return facts | ({"best_step": progress.best_step, "dev": progress.best_score} if training.keep_best else {})


def _export_mlm(model: JointModel, tokenizer, path: Path) -> None:
    """Write encoder and MLM head; stage one's task head, pooler included, is left behind (released code: reset)."""
    assert model.mlm is not None
    plain = AutoModelForMaskedLM.from_config(model.mlm.config)
    wanted = dict(plain.named_parameters())
    with torch.no_grad():
        for name, parameter in model.mlm.named_parameters():
            if name in wanted:
                wanted[name].copy_(parameter)
    plain.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _export_classifier(model: JointModel, tokenizer, path: Path) -> None:
    model.classifier.save_pretrained(path)
    tokenizer.save_pretrained(path)
