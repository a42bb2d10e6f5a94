"""One worker of a training under Ray Train: opens the blocks, resumes, trains, reports, exports."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
import transformers
from ray import train
from ray.train.collective import broadcast_from_rank_zero
from ray.train.torch import get_device
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.corpus.scores import score
from tlm_ray.training.batches import Interleave
from tlm_ray.training.blocks import read_blocks
from tlm_ray.training.checkpoints import Checkpoint, Checkpoints, Progress
from tlm_ray.training.loop import Evaluate, Rank, Training
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import JointModel, config_from, config_of
from tlm_ray.training.prediction import decide, predict
from tlm_ray.training.preparation import FACTS, TOKENIZER
from tlm_ray.training.schedules import CHECKPOINTS, MODEL, NOTE, NOTE_EVERY_S
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
        packed=config["packed"],
        sharded=config["sharded"] and context.get_world_size() > 1,
    )


def stage_one(config: dict[str, Any]) -> dict[str, Any]:
    """Train stage one on this worker; returns the run's facts."""
    rank, blocks = _this_rank(config), config["blocks"]
    facts = storage.read_json(storage.join(blocks, FACTS))
    general = read_blocks(storage.join(blocks, "general.arrow")).cut(config["k"]) if config["k"] else None
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
    model = _first_model(config, tokenizer, tuple(facts["labels"]))
    labelled = config["rho1"] is not None and config["weighting"] != "mlm"
    training = Training(
        model,
        batches,
        config["schedule"],
        rank,
        rho2=config["rho2"],
        weighting=config["weighting"],
        evaluate=_dev_score(blocks, facts["metric"], pad_id, rank) if labelled else None,
    )
    return _run(training, config["folder"], lambda path: _export_mlm(model, tokenizer, path))


def _first_model(config: dict[str, Any], tokenizer: PreTrainedTokenizerBase, labels: tuple[str, ...]) -> JointModel:
    """Return stage one's model: of a pretrained encoder, or of random weights in an architecture or a geometry."""
    seed = config["seed"]
    if config["start"]:
        with _opened(config["start"]) as source:
            return JointModel.from_checkpoint(source, labels=labels, seed=seed, mlm=True)
    if config["architecture"]:
        with _opened(config["architecture"]) as source:
            return JointModel.from_scratch(config_of(source, tokenizer, labels), seed=seed)
    size = {"vocabulary": len(tokenizer), "pad_id": tokenizer.pad_token_id}
    return JointModel.from_scratch(config_from(config["geometry"], **size, labels=labels), seed=seed)


@contextlib.contextmanager
def _opened(source: str) -> Iterator[str]:
    """Lend a local folder with what lies at a location; what is not there is a hub name."""
    if not storage.exists(source):
        yield source
        return
    with storage.folder_for_reading(source) as folder:
        yield str(folder)


def stage_two(config: dict[str, Any]) -> dict[str, Any]:
    """Train stage two on this worker; returns the run's facts."""
    rank, blocks = _this_rank(config), config["blocks"]
    facts = storage.read_json(storage.join(blocks, FACTS))
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as folder:
        tokenizer = load_tokenizer(folder)
    labels = tuple(facts["labels"])
    with _opened(config["start"]) as source:
        model = JointModel.from_checkpoint(source, labels=labels, seed=config["seed"])
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
        return score(metric, gold, decide(predict(model, dev, pad_id=pad_id, rank=rank)))

    return evaluate


def _run(training: Training, folder: str, export: Callable[[Path], None]) -> dict[str, Any]:
    """Resume if there is a checkpoint, train to the end, export on rank 0, return the facts of the run."""
    checkpoints, first = Checkpoints(storage.join(folder, CHECKPOINTS)), training.rank.rank == 0
    newest, damaged = broadcast_from_rank_zero(checkpoints.newest_whole() if first else None)
    if newest is not None:
        training.resume(newest)
    elif damaged:
        why = "; ".join(damaged)
        return {"stopped": f"{checkpoints.folder}: no checkpoint is whole ({why}); delete this folder to train anew"}
    training.progress.damaged += damaged
    try:
        progress = training.run(
            partial(_report, training.rank, checkpoints), _Ticker(folder) if first else lambda progress: None
        )
    except FloatingPointError as error:  # the same on every rank and every retry: stop at once
        return {"stopped": f"{folder}: {error}"}
    checkpoints.wait()
    if first:
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


def _report(
    rank: Rank,
    checkpoints: Checkpoints,
    progress: Progress,
    metrics: dict[str, Any],
    take: Callable[[], Checkpoint] | None,
) -> None:
    """Hand metrics and the history so far to Ray Train; on rank 0, have a checkpoint written."""
    if take is not None and rank.rank == 0:
        checkpoints.save(take)
    elif take is not None and rank.sharded:
        take()  # which every rank has a part in
    train.report(metrics | {"history": list(progress.history)})


def _facts(training: Training, progress: Progress) -> dict[str, Any]:
    facts = {
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "steps": progress.step,
        "tokens": progress.tokens,
        "flops_counted": progress.flops,
        "seconds": progress.seconds,
        "history": progress.history,
    }
    if progress.damaged:
        facts["damaged_checkpoints"] = progress.damaged
    return facts | ({"best_step": progress.best_step, "dev": progress.best_score} if training.keep_best else {})


def _export_mlm(model: JointModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write encoder and MLM head; stage one's task head, pooler included, is left behind (released code: reset)."""
    assert model.mlm is not None
    with model.mlm.whole(model.encoder) as whole:
        whole.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _export_classifier(model: JointModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    with model.task.whole(model.encoder) as whole:
        whole.save_pretrained(path)
    tokenizer.save_pretrained(path)
