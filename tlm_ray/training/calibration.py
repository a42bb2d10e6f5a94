"""How long a step of a training takes here: some of them, on made-up rows of the lengths that its rows will have."""

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
from tlm_ray.training.settings import NUMBERS, StageSettings

WARM, STEPS, SECONDS = 8, 60, 3.0  # steps that do not count, and then as many steps or seconds as come first
ROWS = 2_000  # made up of each stream
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a training computes, as far as it is known before its rows are made."""

    settings: StageSettings
    """what it is; its seed and its number of steps do not matter here"""
    lengths: Mapping[str, Sequence[int]]
    """of each stream: tokens of some of its rows"""
    vocabulary: int
    """entries of the tokenizer"""
    classes: int
    """of the task, 0 for a regression"""
    workers: int = 1
    """that share a step's rows"""
    threads: int = 1
    """of each worker's arithmetic on CPUs"""

    @property
    def key(self) -> str:
        """What identifies its pace, whatever its seed and steps are."""
        schedule, means = self.settings.schedule, {name: round(float(np.mean(n))) for name, n in self.lengths.items()}
        stated = (type(self.settings).__name__, self.settings.start.identity, means, self.vocabulary, self.workers)
        mixed: tuple[Any, ...] = (schedule.batch_rows, self.settings.precision, getattr(self.settings, "rho1", 0))
        mixed += (self.threads,) if self.threads > 1 else ()
        return sha256(json.dumps([*stated, *mixed], default=repr, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def mean_tokens(self) -> float:
        """Tokens of a row of the task."""
        return float(np.mean(self.lengths["task"]))


def seconds_a_step(load: Load, *, side_by_side: int = 1, device: str = "cpu") -> float:
    """Return the seconds of a step on a CPU's threads, or on a GPU, while as many others do the same beside it."""
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
    # of one thread what it computes: what else runs now may not run then
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
    model = settings.start.model(settings.heads, tokenizer=tokenizer, labels=labels, seed=0)
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
