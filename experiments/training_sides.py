"""Both sides of bench_training.py: the released loop, rewritten from its description, and this package's own."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from tlm_ray.training.batches import Batch, Interleave
from tlm_ray.training.blocks import Blocks
from tlm_ray.training.loop import ADAM_BETAS, ADAM_EPSILON, Rank, Training, parameter_groups
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import JointModel, config_from
from tlm_ray.training.schedules import Geometry, Schedule

LENGTH, VOCABULARY, RHO1, RHO2 = 128, 30_522, 7, 20.0
RELEASED, HEADLESS = "released", "released, no vocabulary head"


@dataclass(frozen=True, kw_only=True)
class Data:
    """What both sides train on."""

    name: str
    general: Blocks
    task: Blocks
    labels: tuple[str, ...]
    tokenizer: transformers.PreTrainedTokenizerBase

    def batches(self, stage: str, rows: int, *, rank: int = 0, world: int = 1) -> Interleave:
        """Return the batches of a stage, "one" or "two", that a rank takes."""
        own: dict[str, Any] = {"general": None, "rho1": 0, "masking": None}
        if stage == "one":
            special = tuple(self.tokenizer.all_special_ids)
            masking = Masking(mask_id=self.tokenizer.mask_token_id, vocabulary=VOCABULARY, special_ids=special)
            own = {"general": self.general, "rho1": RHO1, "masking": masking}
        own |= {"rank": rank, "world": world, "pad_id": self.tokenizer.pad_token_id}
        return Interleave(task=self.task, batch_rows=rows, seed=0, **own)

    def model(self, size: str, dropout: float) -> JointModel:
        """Return a model of layers x width, with heads of 64, and random weights, the same ones always."""
        layers, width = map(int, size.split("x"))
        heads = max(1, width // 64)
        geometry = Geometry(layers=layers, width=width, heads=heads, intermediate=4 * width, dropout=dropout)
        config = config_from(geometry, vocabulary=VOCABULARY, pad_id=self.tokenizer.pad_token_id, labels=self.labels)
        return JointModel.from_scratch(config, seed=0)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What both sides do: a stage's steps with a model of some size."""

    data: Data
    size: str
    stage: str
    rows: int
    dropout: float
    device: str = "cpu"
    steps: int = 10_000

    @property
    def schedule(self) -> Schedule:
        """One rate, logged every step."""
        rate: dict[str, Any] = {"learning_rate": 1e-4, "warmup_steps": 0, "weight_decay": 0.01}
        return Schedule(steps=self.steps, batch_rows=self.rows, evaluate_every=self.steps, log_every=1, **rate)


class Released:
    """The released loop's steps; head False leaves the vocabulary head out, which its stage two has no use for."""

    def __init__(self, work: Work, *, head: bool):
        self.model, self.schedule, self.device = work.data.model(work.size, work.dropout), work.schedule, work.device
        self.model.encoder.set_attn_implementation("sdpa")
        self.model.to(work.device).train()
        self.batches, self.head = work.data.batches(work.stage, work.rows), head
        groups = parameter_groups(self.model, self.schedule)
        self.optimizer = torch.optim.AdamW(groups, betas=ADAM_BETAS, eps=ADAM_EPSILON)
        self.losses: list[dict[str, float]] = []

    def step(self, step: int) -> tuple[float, int]:
        """Take one optimizer step; return its seconds, without those in which rows are padded, and its real tokens."""
        batch = self.batches.batch(step)
        inputs = self.padded(batch)
        started = time.perf_counter()
        self.learn(step, batch.kind, *inputs)
        return time.perf_counter() - started, batch.real_tokens

    def learn(self, step: int, kind: str, tokens: Any, attention: Any, targets: Any, labels: Any) -> None:
        """Compute losses and gradients, change the weights, fetch the losses."""
        hidden = self.model.encode({"input_ids": tokens, "attention_mask": attention})
        scores = self.model.task(hidden)
        mlm = task = torch.zeros((), device=self.device)
        if self.head:
            head: Any = self.model.mlm
            logits = nn.functional.linear(head(hidden), head.last.weight, head.last.bias)
            mlm = nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), reduction="sum")
            mlm = mlm / (targets >= 0).sum().clamp(min=1)
        task = nn.functional.cross_entropy(scores, labels) if labels is not None else 0.0 * scores.sum()
        rho2 = RHO2 if (targets >= 0).any() else 0.0
        loss = mlm + task if kind == "general" else (rho2 * mlm + task) / (rho2 + 1)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append({f"{kind}_mlm": mlm.item()} | ({"task": task.item()} if kind == "task" else {}))

    def padded(self, batch: Batch) -> tuple[torch.Tensor | None, ...]:
        """Return a batch's rows padded to LENGTH, and what each place is to be predicted as, -100 for nothing."""
        rows, width = batch.tokens.shape
        tokens = np.full((rows, LENGTH), self.batches.pad_id)
        attention, targets = np.zeros((rows, LENGTH), np.int64), np.full((rows, LENGTH), -100)
        tokens[:, :width], attention[:, :width] = batch.tokens, batch.attention
        if batch.masked is not None:
            targets[np.divmod(batch.masked, width)] = batch.targets
        arrays = (tokens, attention, targets, batch.labels)
        return tuple(None if array is None else torch.from_numpy(array).to(self.device) for array in arrays)


class Ours:
    """This package's loop, as a rank of a training runs it."""

    def __init__(self, work: Work, place: Rank):
        model = work.data.model(work.size, work.dropout)
        model.mlm = model.mlm if work.stage == "one" else None
        batches = work.data.batches(work.stage, work.rows, rank=place.rank, world=place.world)
        self.training = Training(model, batches, work.schedule, place, rho2=RHO2)

    def step(self, step: int) -> tuple[float, int]:
        """Take one step; return its seconds and this rank's real tokens."""
        started, before = time.perf_counter(), self.training.pace.own
        self.training.step(step)
        return time.perf_counter() - started, self.training.pace.own - before
