"""The training loop of one rank: knows torch and its process group, not Ray.

Every random draw is keyed, so a run that is interrupted at any step and resumed from a checkpoint is the same run:
batches and masks by (seed, step, row), dropout by (seed, step, rank).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tlm_ray.training import cpu
from tlm_ray.training.batches import Ahead, Batch, Interleave
from tlm_ray.training.checkpoints import (
    Checkpoint,
    Progress,
    load_checkpoint,
    load_weights,
    snapshot,
    take_checkpoint,
)
from tlm_ray.training.flops import Flops, matmul_rate
from tlm_ray.training.model import JointModel
from tlm_ray.training.objectives import step_loss
from tlm_ray.training.packing import first_position, pack
from tlm_ray.training.schedules import LOSSES, Schedule
from tlm_ray.training.sharding import shard, unshard

ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-6  # the released code's optimizer defaults


@dataclass(frozen=True, kw_only=True)
class Rank:
    """This process among the workers of a run, and what it computes on.

    precision: "fp32" or "bf16" (autocast). micro_rows: rows that go through the model at once, 0 for all of a step.
    packed: rows are laid one after another instead of padded. sharded: weights are shared out over the workers.
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"
    precision: str = "fp32"
    micro_rows: int = 0
    packed: bool = False
    sharded: bool = False

    def autocast(self):
        """Return the context in which forward passes run."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


@dataclass(kw_only=True)
class Pace:
    """What was done since losses were last logged, without evaluations and checkpoints.

    tokens: real tokens of all ranks; own: of this one; computed: with padding. real_flops: operations on own tokens, 0
    where they cannot be known. waiting: seconds for batches to be made.
    """

    tokens: int = 0
    own: int = 0
    computed: int = 0
    real_flops: int = 0
    waiting: float = 0.0
    since: float = field(default_factory=lambda: time.monotonic())

    def rates(self, possible: float) -> dict[str, float]:
        """Return real tokens a second, and shares: of padding, of waiting, and of `possible` operations a second."""
        seconds = max(1e-9, time.monotonic() - self.since)
        found = {
            "tokens_per_s": self.tokens / seconds,
            "padded": 1 - self.own / self.computed,
            "waiting": self.waiting / seconds,
        }
        return found | ({"utilisation": self.real_flops / seconds / possible} if self.real_flops else {})


# report(progress, metrics, take): take is None where there is nothing to keep, else copies the state of the run
Report = Callable[[Progress, dict[str, Any], Callable[[], Checkpoint] | None], None]
Evaluate = Callable[[JointModel], float]


class Training:
    """One stage's training on one rank.

    evaluate: called at each evaluation with the model, returns the dev score; keep_best keeps the weights of the best
    one (ties keep the earlier). A non-finite loss stops the run with an error that names the steps since the last log.
    """

    def __init__(
        self,
        model: JointModel,
        batches: Interleave,
        schedule: Schedule,
        rank: Rank,
        *,
        rho2: float = 0.0,
        weighting: str = "released",
        evaluate: Evaluate | None = None,
        keep_best: bool = False,
    ):
        self.model = model.on(rank.device, packed=rank.packed)
        self.batches, self.schedule, self.rank = batches, schedule, rank
        self.ahead = Ahead(batches, schedule.steps)
        self.rho2, self.weighting, self.evaluate, self.keep_best = (
            rho2,
            weighting,
            evaluate,
            keep_best,
        )
        self.flops = Flops(model)
        if rank.sharded:
            shard(model, device=rank.device, world=rank.world, methods=("scores",))
        self.first = first_position(self.model.encoder) if rank.packed else None
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, schedule), betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True
        )
        replicated = rank.world > 1 and not rank.sharded
        self.parallel: Any = nn.parallel.DistributedDataParallel(model) if replicated else model
        if rank.device == "cpu":
            shared = model.mlm.last if model.mlm and batches.masking and not rank.sharded else None
            cpu.spare_table_gradient(model.encoder, shared)
        self.progress, self.pace = Progress(), Pace()
        self.best: dict[str, torch.Tensor] | None = None
        self.window = torch.zeros(len(LOSSES), 2, dtype=torch.float64, device=rank.device)  # sums and counts

    def resume(self, folder: str) -> None:
        """Continue from a checkpoint folder; DamagedCheckpoint if it is not whole."""
        self.progress, self.best = load_checkpoint(folder, self.model, self.optimizer)

    def run(self, report: Report, tick: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Train to the last step; the model holds the last weights afterwards, or the best if keep_best.

        tick is called whenever losses were logged.
        """
        schedule, progress = self.schedule, self.progress
        possible = matmul_rate(self.rank.device, self.rank.precision)
        started = time.monotonic() - progress.seconds
        self.pace = Pace()
        while progress.step < schedule.steps:
            self.step(progress.step)
            progress.step += 1
            progress.seconds = time.monotonic() - started
            last = progress.step == schedule.steps
            due = last or progress.step % schedule.evaluate_every == 0
            if due or progress.step % schedule.log_every == 0:
                self._log(possible)
                tick(progress)
            if due:
                metrics = self._assess()
                report(progress, metrics, None if last else self._take)
                self.pace = Pace()
        if self.keep_best and self.best is not None:
            load_weights(self.model, self.best)
        if self.rank.sharded:
            unshard(self.model)
        return progress

    def step(self, step: int) -> None:
        """Take one optimizer step."""
        started = time.monotonic()
        batch = self.ahead.batch(step)
        parts = list(batch.parts(self.rank.micro_rows))
        self.pace.waiting += time.monotonic() - started
        torch.manual_seed(_key(self.batches.seed, step, self.rank.rank))
        self.model.train()
        losses = [self._backward(part, last=part is parts[-1]) for part in parts]
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._count(batch, parts)
        mlm, task = (torch.stack(sums).sum() for sums in zip(*losses, strict=True))
        self._note(batch, mlm, task)

    def _backward(self, part: Batch, *, last: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the gradients of a part of a batch, over all workers with the last; return its sums of losses."""
        if self.rank.sharded:
            self.parallel.set_requires_gradient_sync(last)
        replicated = self.rank.world > 1 and not self.rank.sharded
        with self.parallel.no_sync() if replicated and not last else nullcontext():
            with self.rank.autocast():
                mlm, task = self.parallel(*to_device(part, self.rank.device, first=self.first))
            step_loss(mlm, task, part, rho2=self.rho2, weighting=self.weighting, world=self.rank.world).backward()
        return mlm.detach(), task.detach()

    def _count(self, batch: Batch, parts: list[Batch]) -> None:
        """Add a step's tokens and operations; those of the other ranks are taken to be as many as this one's."""
        packed, pace = self.rank.packed, self.pace
        pace.tokens += batch.tokens_total
        pace.own += batch.real_tokens
        pace.computed += sum(part.real_tokens if packed else part.tokens.size for part in parts)
        pace.real_flops += self.flops.real(batch)
        self.progress.tokens += batch.tokens_total
        self.progress.flops += self.rank.world * sum(map(self.flops.real if packed else self.flops.computed, parts))

    def _note(self, batch: Batch, mlm: torch.Tensor, task: torch.Tensor) -> None:
        """Add a step's losses to the window on the device; nothing waits for it."""
        place = 0 if batch.kind == "general" else 1
        if batch.masked is not None:
            self.window[place, 0] += mlm / max(1, batch.masked_total)
            self.window[place, 1] += 1 / self.rank.world
        if batch.kind == "task":
            self.window[2, 0] += task / batch.rows
            self.window[2, 1] += 1 / self.rank.world

    def _log(self, possible: float) -> None:
        """Append the mean losses since the last entry, each over the steps that have it.

        possible: operations a second of a matrix product, of which `utilisation` is the share that was used for tokens.
        """
        if self.rank.world > 1:
            dist.all_reduce(self.window)
        sums, counts = self.window.T.tolist()
        if not np.isfinite(sums).all():
            logged = self.progress.history[-1]["step"] if self.progress.history else 0
            raise FloatingPointError(
                f"steps {logged + 1} to {self.progress.step}: a loss is not finite; lower learning_rate or use "
                "precision fp32"
            )
        entry: dict[str, Any] = {
            "step": self.progress.step,
            "learning_rate": self.schedule.rate(self.progress.step - 1),
        }
        entry |= {name: total / count for name, total, count in zip(LOSSES, sums, counts, strict=True) if count}
        self.progress.history.append(entry | self.pace.rates(possible))
        self.window.zero_()
        self.pace = Pace()

    def _assess(self) -> dict[str, Any]:
        """Score the dev set and remember the best weights."""
        metrics: dict[str, Any] = {"step": self.progress.step}
        if self.evaluate is not None:
            metrics["dev"] = self.evaluate(self.model)
            self.progress.history[-1]["dev"] = metrics["dev"]
            if metrics["dev"] > self.progress.best_score:
                self.progress.best_score, self.progress.best_step = (
                    metrics["dev"],
                    self.progress.step,
                )
                if self.keep_best:
                    self.best = snapshot(self.model)
        return metrics

    def _take(self) -> Checkpoint:
        return take_checkpoint(self.model, self.optimizer, self.progress, self.best)


def to_device(batch: Batch, device: str, *, first: int | None = None):
    """Move a batch's arrays to the device as the arguments of the model's forward.

    first: number of a row's first position, to lay the rows one after another; None leaves them padded.
    """

    def tensor(array: np.ndarray | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

    masked = batch.masked
    arrays: Mapping[str, np.ndarray | None]
    if first is None:
        arrays = {"input_ids": batch.tokens, "attention_mask": batch.attention, "token_type_ids": batch.types}
    else:
        arrays, masked = pack(batch, first=first)
    inputs = {name: tensor(array) if array is None or array.ndim else int(array) for name, array in arrays.items()}
    known = {name: value for name, value in inputs.items() if value is not None}
    return known, tensor(masked), tensor(batch.targets), tensor(batch.labels)


def parameter_groups(model: nn.Module, schedule: Schedule) -> list[dict[str, Any]]:
    """Decay all weights but biases and layer norms, which are the parameters of one dimension (released code)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": schedule.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _key(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
