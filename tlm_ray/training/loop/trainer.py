"""Run the training loop of one worker, on torch and its process group, without Ray.

All random draws are keyed: batches and masks by (seed, step, row), dropout by (seed, step, rank). So a run that is
interrupted and resumed from a checkpoint gives the same result.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tlm_ray.training.kernels import cpu
from tlm_ray.training.loop.agreement import Agreement
from tlm_ray.training.loop.averaging import Average
from tlm_ray.training.loop.checkpoints import (
    Checkpoint,
    Progress,
    load_checkpoint,
    load_weights,
    snapshot,
    take_checkpoint,
)
from tlm_ray.training.loop.optimizers import AdamW, Optimizer, rate_of
from tlm_ray.training.loop.pace import LossWindow, Pace
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.sharding import reshard, shard
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.flops import Flops, matmul_rate
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.objectives import step_loss
from tlm_ray.training.sampler.batches import Batch, Batches, Prefetcher

Save = Callable[[Callable[[], Checkpoint]], None]  # save(take): take() copies the state of the run
Evaluate = Callable[[JointModel], Mapping[str, float]]


class Trainer:
    """The training of one stage on one worker.

    evaluate: called with the model at each evaluation; returns scores, "dev" being the one to maximise. keep_best: keep
    the weights of the best evaluation (the earliest of ties). A non-finite loss stops the run with an error that names
    the steps since the last log.
    """

    def __init__(
        self,
        model: JointModel,
        batches: Batches,
        schedule: Schedule,
        worker: Worker,
        *,
        optimizer: Optimizer = AdamW(),  # noqa: B008 - frozen
        evaluate: Evaluate | None = None,
        keep_best: bool = False,
    ):
        self.model = model.on(worker.device, packed=worker.packed)
        self.batches, self.schedule, self.worker = batches, schedule, worker
        self.prefetcher = Prefetcher(batches, schedule.steps)
        self.evaluate, self.keep_best = evaluate, keep_best
        self.flops = Flops(model)
        if worker.sharded:
            shard(model, device=worker.device, world=worker.world, methods=("scores",))
        self.first = first_position(self.model.encoder) if worker.packed else None
        self.optimizer = optimizer.make(model, weight_decay=schedule.weight_decay)
        self.average = Average(self.optimizer, first=schedule.first_averaged)
        self.parallel: Any = nn.parallel.DistributedDataParallel(model) if worker.is_replicated else model
        if worker.device == "cpu":
            cpu.use_sparse_table_gradient(model.encoder, None if worker.sharded else self._projection())
        self.progress, self.pace = Progress(), Pace()
        self.best: dict[str, torch.Tensor] | None = None
        names = [o.logged_as(stream.name) for stream in batches.streams for o in stream.loss.objectives]
        self.window = LossWindow(names, device=worker.device, world=worker.world)

    def _projection(self) -> nn.Linear | None:
        """Return a projection to the vocabulary that every step uses; None if there is none."""
        streams = [stream.loss.objectives for stream in self.batches.streams]
        always = [o for o in streams[0] if all(o in others for others in streams)]
        found = (o.projection(self.model.heads[o.name]) for o in always)
        return next((projection for projection in found if projection is not None), None)

    def resume(self, folder: str) -> None:
        """Resume from a checkpoint folder; DamagedCheckpoint if it is incomplete or corrupt."""
        self.progress, self.best = load_checkpoint(folder, self.model, self.optimizer)

    def run(
        self,
        save: Save,
        tick: Callable[[Progress], None] = lambda progress: None,
        *,
        is_late: Callable[[], bool] = lambda: False,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> Progress:
        """Train to the last step; then the model has the last weights, or their mean, or the best if keep_best.

        save: called at each evaluation but the last, and after logging losses if is_late() on the first worker. tick:
        called after logging losses or scores. If is_leaving() on any worker, save is called and the run ends early, to
        resume elsewhere.
        """
        schedule, progress, leaving = self.schedule, self.progress, Agreement(self.worker)
        possible = matmul_rate(self.worker.device, self.worker.precision)
        if self.worker.is_replicated:
            self._settle_buckets()
        started = time.monotonic() - progress.seconds
        self._reopen()
        while progress.step < schedule.steps:
            self.step(progress.step)
            progress.step += 1
            progress.seconds = time.monotonic() - started
            last = progress.step == schedule.steps
            due = last or progress.step % schedule.evaluate_every == 0
            logs = due or progress.step % schedule.log_every == 0
            if logs:
                self._log(possible)
            if due:
                self._assess()
            if logs:
                tick(progress)
            leaves = leaving.reached(is_leaving()) and not last
            if leaves or (not last and (due or (logs and self._agreed(is_late())))):
                progress.unlogged = {} if logs else self._unlogged()
                save(self._take)
            if leaves:
                return progress
            if due:
                self.pace = Pace()
        if self.keep_best and self.best is not None:
            load_weights(self.model, self.best)
        else:
            self.average.exchange()
        return progress

    def _agreed(self, wish: bool) -> bool:
        """Return the first worker's decision."""
        if self.worker.world == 1:
            return wish
        said = torch.tensor(float(wish), device=self.worker.device)
        dist.broadcast(said, src=0)
        return bool(said)

    def step(self, step: int) -> None:
        """Take one optimizer step."""
        started = time.monotonic()
        batch = self.prefetcher.batch(step)
        parts = list(self._parts_of(batch, at_least=self._parts_of_all()))
        self.pace.waiting += time.monotonic() - started
        torch.manual_seed(_key(self.batches.seed, step, self.worker.rank))
        self.model.train()
        losses = [self._backward(part, last=part is parts[-1]) for part in parts]
        for group in self.optimizer.param_groups:
            group["lr"] = rate_of(group, self.schedule.rate(step), step)
        self.optimizer.step()
        self.average.add(step)
        self.optimizer.zero_grad(set_to_none=True)
        self._count(batch, parts)
        for objective in batch.loss.objectives:
            targets = batch.targets.get(objective.name)
            if targets is None or not targets.total:  # a step without predictions has no loss
                continue
            loss = torch.stack([sums[objective.name] for sums in losses]).sum()
            self.window.add(objective.logged_as(batch.stream), loss / targets.total)

    def _parts_of(self, batch: Batch, *, at_least: int = 0) -> Iterator[Batch]:
        tokens = batch.real_tokens if self.worker.packed else batch.tokens.size
        return batch.parts(self.worker.rows_at_once(len(batch.tokens), tokens), at_least=at_least)

    def _parts_of_all(self) -> int:
        """Return the minimum number of parts; with sharded weights, all workers get as many as the first."""
        micro_rows = self.worker.micro_rows
        return math.ceil(self.batches.rows_of(0) / micro_rows) if self.worker.sharded and micro_rows else 1

    def _backward(self, part: Batch, *, last: bool) -> dict[str, torch.Tensor]:
        """Add a part's gradients, reduced over all workers at the last part; return its sums of losses."""
        if self.worker.sharded:
            self.parallel.set_requires_gradient_sync(last)
        with self.parallel.no_sync() if self.worker.is_replicated and not last else nullcontext():
            with self.worker.autocast():
                sums = self.parallel(*to_device(part, self.worker.device, first=self.first))
            share, world = part.token_share, self.worker.world
            loss = step_loss(sums, part.targets, part.loss, token_share=share, world=world)
            (0.0 * loss if part.is_idle else loss).backward()
        return {name: torch.zeros_like(loss) if part.is_idle else loss.detach() for name, loss in sums.items()}

    def _settle_buckets(self) -> None:
        """Let DistributedDataParallel order its buckets, which it does after its first backward pass.

        The bucket order decides the summation order of three or more workers' gradients. To make resumed runs
        identical, every run starts with this pass over the first step and discards its gradients.
        """
        first = next(self._parts_of(self.batches.batch(0)))
        self.model.train()
        self._backward(first, last=True)
        self.optimizer.zero_grad(set_to_none=True)

    def _count(self, batch: Batch, parts: list[Batch]) -> None:
        """Add a step's tokens and operations, assuming that other workers' operations equal this one's."""
        packed, pace = self.worker.packed, self.pace
        pace.tokens += batch.tokens_total
        pace.own += batch.real_tokens
        pace.computed += sum(part.real_tokens if packed else part.tokens.size for part in parts)
        pace.real_flops += self.flops.real(batch)
        self.progress.tokens += batch.tokens_total
        computed = sum(map(self.flops.real if packed else self.flops.computed, parts))
        self.progress.flops += self.worker.world * computed

    def _log(self, possible: float) -> None:
        """Append the mean losses since the last history entry, each over the steps that have it.

        possible: operations per second of a matrix product; `utilisation` is relative to it.
        """
        means = self.window.means()
        self._demand_finite(list(means.values()))
        entry = {"step": self.progress.step, "learning_rate": self.schedule.rate(self.progress.step - 1)}
        self.progress.history.append(entry | means | self.pace.rates(possible))
        self.pace = Pace()

    def _demand_finite(self, losses: list[Any]) -> None:
        """Raise FloatingPointError if a loss since the last entry is not finite, so that no checkpoint is written."""
        if not np.isfinite(losses).all():
            logged = self.progress.history[-1]["step"] if self.progress.history else 0
            raise FloatingPointError(
                f"steps {logged + 1} to {self.progress.step}: a loss is not finite; lower learning_rate or use "
                "precision fp32"
            )

    def _unlogged(self) -> dict[str, Any]:
        """Return the data so far for the next history entry; all workers must call it."""
        losses = self.window.kept()
        self._demand_finite(losses)
        return {"losses": losses, "pace": self.pace.kept()}

    def _reopen(self) -> None:
        """Restore the data for the next history entry from a checkpoint."""
        kept, self.pace = self.progress.unlogged, Pace()
        if kept:
            self.window.resume(kept["losses"], rank=self.worker.rank)
            self.pace = Pace.resumed(kept["pace"])

    def _assess(self) -> None:
        """Evaluate on dev and keep the best weights (the averaged ones, if weights are averaged)."""
        if self.evaluate is None:
            return
        with self.average.in_place():
            scores = self.evaluate(self.model)
            if self.worker.sharded:
                reshard(self.model)
            is_first = not self.progress.best_step and not math.isnan(scores["dev"])
            if is_first or scores["dev"] > self.progress.best_score:
                self.progress.best_score, self.progress.best_step = scores["dev"], self.progress.step
                if self.keep_best:
                    self.best = snapshot(self.model)
        self.progress.history[-1] |= scores

    def _take(self) -> Checkpoint:
        return take_checkpoint(self.model, self.optimizer, self.progress, self.best)


def _key(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
