"""Measure the time of a training step on this hardware, on synthetic rows of realistic lengths."""

import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from tlm_ray.process import tune_torch
from tlm_ray.training.model import JointModel
from tlm_ray.training.settings import NUMBERS, StageSettings

WARM, STEPS, SECONDS = 8, 60, 3.0  # warm-up steps, then the maximum of steps and of seconds, whichever comes first
ROWS = 2_000  # synthetic rows per stream
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True)
class Load:
    """The known workload of a training before its rows exist."""

    settings: StageSettings
    """its settings; seed and number of steps have no effect here"""
    lengths: Mapping[str, Sequence[int]]
    """per stream, the lengths of some of its rows in tokens"""
    vocabulary: int
    """entries of the tokenizer"""
    classes: int
    """classes of the task, 0 for a regression"""
    workers: int = 1
    """number of workers of the training"""
    threads: int = 1
    """CPU threads per worker"""

    @property
    def key(self) -> str:
        """The key of its pace, independent of seed and steps."""
        schedule, means = self.settings.schedule, {name: round(float(np.mean(n))) for name, n in self.lengths.items()}
        stated = (type(self.settings).__name__, self.settings.start.identity, means, self.vocabulary, self.workers)
        mixed: tuple[Any, ...] = (schedule.batch_rows, self.settings.precision, getattr(self.settings, "rho1", 0))
        mixed += (self.threads,) if self.threads > 1 else ()
        return sha256(json.dumps([*stated, *mixed], default=repr, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def mean_tokens(self) -> float:
        """The tokens per task row."""
        return float(np.mean(self.lengths["task"]))


def seconds_a_step(load: Load, *, side_by_side: int = 1, device: str = "cpu") -> float:
    """Return the seconds per step on a CPU or GPU, while `side_by_side` such trainings run in parallel."""
    with ProcessPoolExecutor(side_by_side, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(_measured, [load] * side_by_side, [device] * side_by_side)
        return float(np.mean(list(found)))


def _measured(load: Load, device: str) -> float:
    """Train for some seconds."""
    tune_torch()
    import torch

    torch.set_num_threads(load.threads)
    trainer = _trainer(load, device)
    for step in range(WARM):
        trainer.step(step)
    # CPU time for one thread, because current other processes may not run during the training
    clock = time.process_time if device == "cpu" and load.threads == 1 else time.perf_counter
    started, steps = clock(), 0
    while steps < STEPS and clock() - started < SECONDS:
        trainer.step(WARM + steps)
        steps += 1
    if device != "cpu":
        torch.cuda.synchronize()
    return (clock() - started) / steps


def _trainer(load: Load, device: str) -> Any:
    import transformers

    from tlm_ray.training.batches import Batches
    from tlm_ray.training.masking import Vocabulary
    from tlm_ray.training.trainer import Trainer
    from tlm_ray.training.worker import Worker

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    settings, entries = load.settings, [*SPECIAL, *(f"[{i}]" for i in range(load.vocabulary - len(SPECIAL)))]
    tokenizer = transformers.BertTokenizer(vocab={entry: i for i, entry in enumerate(entries)})
    labels = tuple(map(str, range(load.classes)))
    model = JointModel.of(settings.start, settings.heads, tokenizer=tokenizer, labels=labels, seed=0)
    rows = -(-settings.schedule.batch_rows // load.workers)
    schedule = replace(settings.schedule, steps=WARM + STEPS, warmup_steps=0, batch_rows=rows)
    batches = Batches(
        streams=_streams(load, rows), mixer=settings.mixer, vocabulary=Vocabulary.of(tokenizer), seed=0
    )  # fmt: skip
    return Trainer(
        model, batches, schedule, Worker(device=device, precision=settings.precision), optimizer=settings.optimizer
    )


def _streams(load: Load, rows: int) -> tuple[Any, ...]:
    from tlm_ray.training.blocks import Blocks
    from tlm_ray.training.streams import Stream

    draws, found = np.random.default_rng(0), []
    for name, loss in load.settings.losses.items():
        lengths = draws.choice(np.asarray(load.lengths[name]), ROWS)
        tokens = draws.integers(len(SPECIAL), load.vocabulary, lengths.sum()).astype(np.int32)
        labels = draws.integers(0, load.classes, ROWS) if load.classes else draws.random(ROWS)
        blocks = Blocks(tokens, np.concatenate([[0], np.cumsum(lengths)]), labels=labels if name == "task" else None)
        found.append(Stream(name=name, number=NUMBERS[name], blocks=blocks, loss=loss, batch_rows=rows, seed=0))
    return tuple(found)
