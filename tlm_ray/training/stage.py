"""Run a training stage on one worker: open the blocks, resume, train, save, export."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.process import quiet_transformers
from tlm_ray.training.encoders.configs import reads_types
from tlm_ray.training.encoders.marked_head import check_marks
from tlm_ray.training.encoders.starts import Pretrained, opened
from tlm_ray.training.loop.checkpoints import Checkpoint, Checkpoints, Progress, load_weights, snapshot
from tlm_ray.training.loop.progress import Follower, Ticker
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import MarkedLabels, Objective, SoftTokens
from tlm_ray.training.objectives.tokens import OfTokens
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import BLOCKS, CHECKPOINTS, MODEL, MOVES, STOPPED, TASK, Job, StageSettings
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.masking import Vocabulary
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER, read_counts
from tlm_ray.training.tokens.tokenizer import load_tokenizer


def run_job(
    job: Job, worker: Worker, *, is_leaving: Callable[[], bool] = lambda: False, followers: Sequence[Follower] = ()
) -> dict[str, Any]:
    """Train a stage as this worker; return the run's facts, or why it stopped, or that it resumes elsewhere.

    is_leaving: returns whether this worker's node is about to be removed. torch uses one thread per CPU of the worker's
    share, so that results do not vary.
    """
    quiet_transformers()
    if worker.device == "cpu":
        torch.set_num_threads(job.compute.threads)
    job = replace(job, settings=job.settings.opened(job))
    settings = job.settings
    facts = storage.read_record(storage.join(job.blocks, FACTS))
    with storage.folder_for_reading(storage.join(job.blocks, TOKENIZER)) as folder:
        needs = [needed for one in settings.heads for needed in one.needs]
        tokenizer = load_tokenizer(folder, needs=needs, sentinels=max(one.sentinels for one in settings.heads))
    _check_marks(job, tokenizer)
    batches = Batches(
        streams=_streams(job),
        mixer=settings.mixer,
        vocabulary=Vocabulary.of(tokenizer),
        seed=settings.seed,
        rank=worker.rank,
        world=worker.world,
    )
    labels = tuple(facts["labels"])
    new_model = partial(_new_model, job, batches.streams, tokenizer=tokenizer, labels=labels)
    trainer = Trainer(
        new_model(),
        batches,
        settings.schedule,
        worker,
        optimizer=settings.optimizer,
        evaluate=settings.evaluate(job, pad_id=tokenizer.pad_token_id, worker=worker),
        keep_best=settings.keeps_best,
    )
    found = _run(trainer, job, is_leaving, followers)
    if not found.keys() & {STOPPED, MOVES}:
        _export(trainer, job, tokenizer, new_model)
    return found


def _new_model(
    job: Job, streams: Sequence[Stream], *, tokenizer: PreTrainedTokenizerBase, labels: tuple[str, ...]
) -> JointModel:
    """Return the initial model."""
    settings = job.settings
    how: dict[str, Any] = {"tokenizer": tokenizer, "labels": labels, "seed": settings.seed}
    teacher = _teacher(settings, how) if settings.taught_by else None
    model = JointModel.of(settings.start, settings.heads, teacher=teacher, **how)
    if job.counts:
        model.begin_with(*read_counts(job.counts))
    for stream in streams:
        model.scale_to(stream.blocks.labels, stream.loss.objectives)
    if settings.adapters:
        settings.adapters.add_to(model.encoder)
    return model


def _of_tokens(settings: StageSettings) -> Objective:
    """Return the objective with whose head a teacher is opened: the first that predicts tokens."""
    return next((one for one in settings.heads if isinstance(one, OfTokens)), settings.exports[MODEL])


def _teacher(settings: StageSettings, how: dict[str, Any]) -> JointModel:
    """Open a trained model to learn from; ValueError if it has another vocabulary, or predicts no tokens to learn."""
    source, objective = settings.taught_by, _of_tokens(settings)
    with opened(source) as folder:
        known, own = load_tokenizer(folder).get_vocab(), how["tokenizer"].get_vocab()
    if known != own:
        raise ValueError(
            f"teacher {source!r}: of its {len(known):,} tokens, {len(known.items() & own.items()):,} have the same "
            f"number among the student's {len(own):,}; give the student the teacher's tokenizer, as Recipe.tokenizer"
        )
    teacher = JointModel.of(Pretrained(source), (objective,), **how)
    if any(isinstance(one, SoftTokens) for one in settings.heads) and teacher.heads[objective.name].is_new:
        raise ValueError(
            f"teacher {source!r}: has no trained head for masked tokens, so SoftTokens would learn random numbers; "
            "leave SoftTokens out, or give a teacher that opens as AutoModelForMaskedLM"
        )
    return teacher


def _check_marks(job: Job, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if few training rows have the marks that an objective reads."""
    for one in job.settings.heads:
        if isinstance(one, MarkedLabels) and TASK in job.settings.losses:
            check_marks(read_blocks(storage.join(job.blocks, BLOCKS[TASK])), tokenizer, one.marks)


def _streams(job: Job) -> tuple[Stream, ...]:
    """Open the rows of each stream that the settings train on."""
    settings, streams = job.settings, []
    for name, loss in settings.losses.items():
        uri, number = settings.rows_of(name, job.taught or job.blocks)
        blocks = read_blocks(uri)
        streams.append(
            Stream(
                name=name,
                number=number,
                blocks=blocks if blocks.ranks is None else blocks.cut(settings.k).spread(settings.general_share),
                loss=loss,
                batch_rows=settings.schedule.batch_rows,
                seed=settings.seed,
            )
        )
    return tuple(streams)


def _run(trainer: Trainer, job: Job, is_leaving: Callable[[], bool], followers: Sequence[Follower]) -> dict[str, Any]:
    """Resume from any checkpoint, train to the end, and return the run's facts, or why there are none."""
    checkpoints = Checkpoints(storage.join(job.folder, CHECKPOINTS))
    is_first = trainer.worker.rank == 0
    newest, damaged = _of_the_first(checkpoints.newest_whole() if is_first else None, trainer.worker)
    if newest is not None:
        trainer.resume(newest)
    elif damaged:
        why = "; ".join(damaged)
        return {STOPPED: f"{checkpoints.folder}: all are corrupt ({why}); delete this folder to start over"}
    trainer.progress.damaged += damaged
    step, tokens = trainer.progress.step, trainer.progress.tokens
    tick = Ticker(job.folder, followers, step=step, tokens=tokens) if is_first else lambda progress: None
    try:
        progress = trainer.run(
            partial(_save, trainer.worker, checkpoints),
            tick,
            is_late=checkpoints.is_late,
            is_leaving=is_leaving,
        )
    except FloatingPointError as error:  # the same on every worker and retry, so stop at once
        return {STOPPED: f"{job.folder}: {error}"}
    checkpoints.wait()
    if progress.step < job.settings.schedule.steps:
        return {MOVES: progress.step}
    return _facts(trainer, progress)


def _of_the_first(value: Any, worker: Worker) -> Any:
    """Broadcast the first worker's value."""
    if worker.world == 1:
        return value
    from ray.train.collective import broadcast_from_rank_zero

    return broadcast_from_rank_zero(value)


def _save(worker: Worker, checkpoints: Checkpoints, take: Callable[[], Checkpoint]) -> None:
    """Write a checkpoint on rank 0."""
    if worker.rank == 0:
        checkpoints.save(take)
    elif worker.sharded:
        take()  # every worker takes part in it


def _facts(trainer: Trainer, progress: Progress) -> dict[str, Any]:
    parameters = list(trainer.model.parameters())
    facts = {
        "parameters": sum(p.numel() for p in parameters),
        "steps": progress.step,
        "tokens": progress.tokens,
        "flops_counted": progress.flops,
        "passes": _passes(trainer.batches, progress.step),
        "seconds": progress.seconds,
        "history": progress.history,
    }
    if trainer.flops.unknown:
        facts["flops_unknown"] = trainer.flops.unknown  # why flops_counted is 0, or lacks these objectives' steps
    if not all(p.requires_grad for p in parameters):
        facts["parameters_trained"] = sum(p.numel() for p in parameters if p.requires_grad)
    if progress.damaged:
        facts["damaged_checkpoints"] = progress.damaged
    return facts | ({"best_step": progress.best_step, "dev": progress.best_score} if trainer.keep_best else {})


def _passes(batches: Batches, steps: int) -> dict[str, float]:
    """Return how often a training has passed over the rows of each stream."""
    turns = Counter(batches.mixer.place(step)[0] for step in range(steps))
    return {
        stream.name: round(turns[number] * stream.batch_rows / len(stream.blocks), 2)
        for number, stream in enumerate(batches.streams)
    }


def _export(
    trainer: Trainer, job: Job, tokenizer: PreTrainedTokenizerBase, new_model: Callable[[], JointModel]
) -> None:
    """Write the trained model on rank 0; transformers can open it.

    With sharded weights, all workers gather them, and rank 0 writes them from an unsharded model. Writing a sharded one
    would gather again, after the other workers have finished.
    """
    model = trainer.model
    if trainer.worker.sharded:
        weights = snapshot(model)
        if trainer.worker.rank == 0:
            model = new_model()
            load_weights(model, weights)
    if trainer.worker.rank == 0:
        _return_types_as_trained(tokenizer, model.encoder)
        if job.settings.adapters:
            job.settings.adapters.merge(model.encoder)
        for name, objective in job.settings.exports.items():
            with storage.folder_for_writing(storage.join(job.folder, name)) as path:
                model.export(objective, path, precision=job.settings.precision)
                tokenizer.save_pretrained(path)


def _return_types_as_trained(tokenizer: PreTrainedTokenizerBase, encoder: Any) -> None:
    """Make a tokenizer return token types where the encoder was trained with them, and nowhere else."""
    names, types = list(tokenizer.model_input_names), "token_type_ids"
    if types not in inspect.signature(encoder.forward).parameters or (types in names) == reads_types(encoder.config):
        return
    if types in names:
        names.remove(types)
    else:
        names.append(types)
    # transformers writes the attribute of what is in the dictionary
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
