"""Both sides of bench_training.py: the released loop, rewritten from its description, and this package's own."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.loop.optimizers import AdamW, parameter_groups
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm, Objective
from tlm_ray.training.sampler.batches import Batch, Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import GENERAL, NUMBERS, TASK, StageOne, StageSettings, StageTwo
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

LENGTH, VOCABULARY, RHO1, RHO2 = 128, 30_522, 7, 20.0
RELEASED, HEADLESS = "released", "released, no vocabulary head"


@dataclass(frozen=True, kw_only=True)
class Data:
    """The training data of both sides."""

    name: str
    general: Blocks
    task: Blocks
    labels: tuple[str, ...]
    tokenizer: transformers.PreTrainedTokenizerBase

    def batches(self, settings: StageSettings, *, rank: int = 0, world: int = 1) -> Batches:
        """Return a worker's batches of a stage."""
        rows = {GENERAL: self.general, TASK: self.task}
        streams = tuple(
            Stream(
                name=name,
                number=NUMBERS[name],
                blocks=rows[name],
                loss=loss,
                batch_rows=settings.schedule.batch_rows,
                seed=settings.seed,
            )
            for name, loss in settings.losses.items()
        )
        vocabulary = replace(
            Vocabulary.of(self.tokenizer), size=VOCABULARY
        )  # all of the model's parameters, used or not
        return Batches(
            streams=streams, mixer=settings.mixer, vocabulary=vocabulary, seed=settings.seed, rank=rank, world=world
        )

    def model(self, geometry: Geometry, objectives: tuple[Objective, ...]) -> JointModel:
        """Return a model with fixed random weights."""
        config = scratch_config(geometry, vocabulary=VOCABULARY, pad_id=self.tokenizer.pad_token_id, labels=self.labels)
        return JointModel(RandomWeights(config, seed=0), objectives, family=geometry.of_family)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of both sides: a stage's steps with a model of some size."""

    data: Data
    size: str
    stage: str
    rows: int
    dropout: float
    device: str = "cpu"
    steps: int = 10_000
    family: str = "bert"

    @property
    def geometry(self) -> Geometry:
        """The geometry of layers x width, with attention heads of 64 and the family's feed-forward width."""
        layers, width = map(int, self.size.split("x"))
        sizes = {"heads": max(1, width // 64), "intermediate": 4 * width if self.family == "bert" else 3 * width // 2}
        return Geometry(family=self.family, layers=layers, width=width, dropout=self.dropout, **sizes)

    @property
    def settings(self) -> StageOne | StageTwo:
        """The stage's settings with a constant learning rate, every step logged."""
        rate: dict[str, Any] = {"learning_rate": 1e-4, "warmup_steps": 0, "weight_decay": 0.01}
        schedule = Schedule(steps=self.steps, batch_rows=self.rows, evaluate_every=self.steps, log_every=1, **rate)
        common: dict[str, Any] = {"start": Scratch(self.geometry), "schedule": schedule, "precision": "fp32", "seed": 0}
        if self.stage == "two":
            return StageTwo(**common)
        return StageOne(k=1, rho1=RHO1, rho2=RHO2, weighting="released", **common)


class Released:
    """The released loop; head=False omits the vocabulary head, which stage two does not need."""

    def __init__(self, work: Work, *, head: bool):
        self.schedule, self.device = work.settings.schedule, work.device
        self.model = work.data.model(work.geometry, (Labels(), Mlm()))
        self.model.encoder.set_attn_implementation("sdpa")
        self.model.to(work.device).train()
        self.batches, self.head = work.data.batches(work.settings), head
        groups, ours = parameter_groups(self.model, self.schedule.weight_decay), AdamW()
        self.optimizer = torch.optim.AdamW(groups, betas=ours.betas, eps=ours.epsilon)
        self.losses: list[dict[str, float]] = []

    def step(self, step: int) -> tuple[float, int]:
        """Take one optimizer step; return its seconds, without padding of rows, and its non-padding tokens."""
        batch = self.batches.batch(step)
        inputs = self.padded(batch)
        started = time.perf_counter()
        self.learn(step, batch.stream, batch.token_share, *inputs)
        return time.perf_counter() - started, batch.real_tokens

    def learn(
        self, step: int, stream: str, share: float, tokens: Any, attention: Any, targets: Any, labels: Any
    ) -> None:
        """Compute losses and gradients, change the weights, fetch the losses."""
        hidden = self.model.encode({"input_ids": tokens, "attention_mask": attention})
        scores = self.model.heads["labels"](hidden)
        mlm = task = torch.zeros((), device=self.device)
        if self.head:
            head: Any = self.model.heads["mlm"]
            logits = nn.functional.linear(head(hidden), head.last.weight, head.last.bias)
            mlm = nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), reduction="sum")
            mlm = mlm / (targets >= 0).sum().clamp(min=1)
        task = nn.functional.cross_entropy(scores, labels) if labels is not None else 0.0 * scores.sum()
        rho2 = RHO2 if (targets >= 0).any() else 0.0
        alike = share * mlm  # every token has equal weight, as in ours
        loss = alike + task if stream == GENERAL else (rho2 * alike + task) / (rho2 + 1)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append({f"{stream}_mlm": mlm.item()} | ({TASK: task.item()} if stream == TASK else {}))

    def padded(self, batch: Batch) -> tuple[torch.Tensor | None, ...]:
        """Return a batch's rows padded to LENGTH, and their targets, -100 for none."""
        rows, width = batch.tokens.shape
        tokens = np.full((rows, LENGTH), self.batches.vocabulary.pad_id)
        attention, targets = np.zeros((rows, LENGTH), np.int64), np.full((rows, LENGTH), -100)
        tokens[:, :width], attention[:, :width] = batch.tokens, batch.attention
        if "mlm" in batch.targets:
            mlm = batch.targets["mlm"]
            assert mlm.chosen is not None, "MLM predicts tokens"
            targets[np.nonzero(mlm.chosen)] = mlm.flat
        labels = batch.targets["labels"].values if "labels" in batch.targets else None
        arrays = (tokens, attention, targets, labels)
        return tuple(None if array is None else torch.from_numpy(array).to(self.device) for array in arrays)


class Ours:
    """This package's training loop, as a worker runs it."""

    def __init__(self, work: Work, worker: Worker):
        batches = work.data.batches(work.settings, rank=worker.rank, world=worker.world)
        model = work.data.model(work.geometry, work.settings.heads)
        self.trainer = Trainer(model, batches, work.settings.schedule, worker)

    def step(self, step: int) -> tuple[float, int]:
        """Take one step; return its seconds and this worker's non-padding tokens."""
        started, before = time.perf_counter(), self.trainer.pace.own
        self.trainer.step(step)
        return time.perf_counter() - started, self.trainer.pace.own - before
