"""One worker of a training under Ray Train: opens the blocks, resumes, trains, reports, exports."""

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import torch
import transformers
from ray import train
from ray.train.torch import get_device
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.corpus.scores import score
from tlm_ray.training.batches import Interleave
from tlm_ray.training.blocks import read_blocks
from tlm_ray.training.checkpoints import Progress
from tlm_ray.training.loop import Evaluate, Rank, Training
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import JointModel, bert_config
from tlm_ray.training.prediction import predict
from tlm_ray.training.preparation import FACTS, TOKENIZER
from tlm_ray.training.schedules import MODEL, NOTE, NOTE_EVERY_S
from tlm_ray.training.tokenizer import load_tokenizer


def _this_rank(config: dict[str, Any]) -> Rank:
    """Describe this worker; CPU arithmetic is one thread a CPU of its share, so that results do not vary."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    context = train.get_context()
    device = get_device()
    if device.type == "cpu":
        torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
    return Rank(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        device=str(device),
        precision=config["precision"],
        micro_rows=config["micro_rows"],
    )


def stage_one(config: dict[str, Any]) -> dict[str, Any]:
    """Train stage one on this worker; returns the run's facts."""
    rank, blocks = _this_rank(config), config["blocks"]
    facts = storage.read_json(storage.join(blocks, FACTS))
    general = read_blocks(storage.join(blocks, "general.arrow")).cut(config["k"]) if config["rho1"] else None
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as folder:
        tokenizer = load_tokenizer(folder)
    pad_id = tokenizer.pad_token_id
    batches = Interleave(
        general=general,
        task=read_blocks(storage.join(blocks, "train.arrow")),
        rho1=config["rho1"],
        batch_rows=config["schedule"].batch_rows,
        seed=config["seed"],
        pad_id=pad_id,
        rank=rank.rank,
        world=rank.world,
        masking=Masking(
            mask_id=tokenizer.mask_token_id,
            vocabulary=len(tokenizer),
            special_ids=tuple(tokenizer.all_special_ids),
        ),
    )
    bert = bert_config(config["geometry"], vocabulary=len(tokenizer), pad_id=pad_id, labels=tuple(facts["labels"]))
    model = JointModel.from_scratch(bert, seed=config["seed"])
    training = Training(
        model,
        batches,
        config["schedule"],
        rank,
        rho2=config["rho2"],
        weighting=config["weighting"],
        evaluate=_dev_score(blocks, facts["metric"], pad_id, rank),
    )
    return _run(training, config["folder"], lambda path: _export_mlm(model, tokenizer, path))


def stage_two(config: dict[str, Any]) -> dict[str, Any]:
    """Train stage two on this worker; returns the run's facts."""
    rank, blocks = _this_rank(config), config["blocks"]
    facts = storage.read_json(storage.join(blocks, FACTS))
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as folder:
        tokenizer = load_tokenizer(folder)
    labels = tuple(facts["labels"])
    if storage.exists(config["start"]):
        with storage.folder_for_reading(config["start"]) as folder:
            model = JointModel.from_checkpoint(folder, labels=labels, seed=config["seed"])
    else:
        model = JointModel.from_checkpoint(config["start"], labels=labels, seed=config["seed"])
    batches = Interleave(
        general=None,
        task=read_blocks(storage.join(blocks, "train.arrow")),
        rho1=0,
        masking=None,
        batch_rows=config["schedule"].batch_rows,
        seed=config["seed"],
        pad_id=tokenizer.pad_token_id,
        rank=rank.rank,
        world=rank.world,
    )
    evaluate = _dev_score(blocks, facts["metric"], tokenizer.pad_token_id, rank)
    training = Training(model, batches, config["schedule"], rank, evaluate=evaluate, keep_best=True)
    return _run(training, config["folder"], lambda path: _export_classifier(model, tokenizer, path))


def _dev_score(blocks: str, metric: str, pad_id: int, rank: Rank) -> Evaluate:
    dev = read_blocks(storage.join(blocks, "dev.arrow"))
    assert dev.labels is not None, "task blocks carry labels"

    gold = dev.labels

    def evaluate(model: JointModel) -> float:
        return score(metric, gold, predict(model, dev, pad_id=pad_id, rank=rank).argmax(axis=1))

    return evaluate


def _run(training: Training, folder: str, export: Callable[[Path], None]) -> dict[str, Any]:
    """Resume if there is a checkpoint, train to the end, export on rank 0, return the facts of the run."""
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as path:
            training.resume(Path(path))
    try:
        progress = training.run(_report, _Ticker(folder) if training.rank.rank == 0 else lambda progress: None)
    except FloatingPointError as error:  # the same on every rank and every retry: stop at once
        return {"stopped": f"{folder}: {error}"}
    if training.rank.rank == 0:
        with storage.folder_for_writing(storage.join(folder, MODEL)) as path:
            export(path)
    return _facts(training, progress)


class _Ticker:
    """Leaves a note of how far a training is, for the driver to show."""

    def __init__(self, folder: str):
        self.uri, self.last = storage.join(folder, NOTE), time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self.last > NOTE_EVERY_S:
            self.last = time.monotonic()
            with contextlib.suppress(OSError):  # the note is for eyes only
                storage.write_json(self.uri, progress.history[-1] | {"seconds": progress.seconds})


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
        "flops_counted": progress.flops * training.rank.world,
        "seconds": progress.seconds,
        "history": progress.history,
    }
    return facts | ({"best_step": progress.best_step, "dev": progress.best_score} if training.keep_best else {})


def _export_mlm(model: JointModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
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


def _export_classifier(model: JointModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    model.classifier.save_pretrained(path)
    tokenizer.save_pretrained(path)
