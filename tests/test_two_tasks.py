"""Several labelled tasks in one training: settings of one's own, a classifier each, batches drawn by size."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from trainings import GEOMETRY, SCHEDULE, make_blocks, one_thread  # noqa: F401 - a fixture
from transformers import AutoModelForSequenceClassification

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.evaluation.predictions import decide
from tlm_ray.evaluation.scores import score
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.objectives import Labels, Loss
from tlm_ray.training.scoring.prediction import predict
from tlm_ray.training.settings import MODEL, Job, StageSettings
from tlm_ray.training.stage import run_job
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import train_wordpiece

TASKS = {"topic": ("sea", "sky", "kitchen"), "length": ("short", "long")}


@dataclass(frozen=True)
class BySize:
    """Each step's task, drawn in proportion to its training rows."""

    sizes: tuple[int, ...]

    def place(self, step: int) -> tuple[int, int]:
        shares = np.array(self.sizes) / sum(self.sizes)
        drawn = np.random.default_rng(0).choice(len(self.sizes), step + 1, p=shares)
        return int(drawn[step]), int((drawn[:step] == drawn[step]).sum())


@dataclass(frozen=True)
class LabelsOf(Labels):
    """The labels of one of several tasks, with a classifier of their own."""

    name: str = ""  # type: ignore[misc]
    labels: tuple[str, ...] = ()

    def head(self, weights):
        return weights.classifier_head(self.labels)


@dataclass(frozen=True)
class Each(Labels):
    """What exports each task's classifier to a folder of its own."""

    def export(self, model, folder):
        for name, head in model.heads.items():
            head.export(model.encoder, folder / name)


@dataclass(frozen=True, kw_only=True)
class Together(StageSettings):
    """Training on several tasks at once."""

    tasks: tuple[LabelsOf, ...]
    sizes: tuple[int, ...]

    @property
    def identity(self) -> dict[str, Any]:
        return vars(self)

    @property
    def losses(self) -> dict[str, Loss]:
        return {task.name: Loss(((task, 1.0),)) for task in self.tasks}

    @property
    def mixer(self) -> BySize:
        return BySize(self.sizes)

    @property
    def heads(self) -> tuple[LabelsOf, ...]:
        return self.tasks

    @property
    def exports(self) -> Mapping[str, Labels]:
        return {MODEL: Each()}

    def rows_of(self, stream: str, blocks: str) -> tuple[str, int]:
        return storage.join(blocks, stream, "train.arrow"), list(TASKS).index(stream)

    def evaluate(self, job: Job, *, pad_id: int, worker: Worker):
        devs = {task.name: read_blocks(storage.join(job.blocks, task.name, "train.arrow")) for task in self.tasks}

        def scores(model: Any) -> Mapping[str, float]:
            found = {}
            for name, dev in devs.items():
                predicted = decide(predict(model, dev, pad_id=pad_id, worker=worker, objective=name))
                found[f"dev_{name}"] = score("accuracy", dev.labels, predicted)
            return found | {"dev": sum(found.values()) / len(found)}

        return scores


def learnable(name: str, rows: int) -> Any:
    """Rows whose label is in their tokens: their second token's rest, or whether they are long."""
    blocks = make_blocks(rows, seed=len(name), labels=True)
    firsts = blocks.tokens[blocks.offsets[:-1] + 1]
    labels = firsts % 3 if name == "topic" else (blocks.lengths > 14).astype(np.int64)
    return replace(blocks, labels=labels.astype(np.int64))


@pytest.fixture
def job(tmp_path, monkeypatch) -> Job:
    """Two tasks' rows in a folder, and one worker without Ray."""
    sizes = (60, 120)
    for (name, _), rows in zip(TASKS.items(), sizes, strict=True):
        blocks = learnable(name, rows)
        tokens = pa.ListArray.from_arrays(blocks.offsets.astype(np.int32), blocks.tokens)
        table = pa.table({"tokens": tokens, "label": blocks.labels})
        storage.write_table(storage.join(str(tmp_path), "blocks", name, "train.arrow"), table)
    storage.write_record(storage.join(str(tmp_path), "blocks", FACTS), {"labels": TASKS["topic"], "metric": "accuracy"})
    train_wordpiece(
        [" ".join(a + b for a in ascii_lowercase for b in ascii_lowercase)] * 3, vocabulary=80
    ).save_pretrained(tmp_path / "blocks" / TOKENIZER)
    schedule = replace(SCHEDULE, steps=240, evaluate_every=60)
    settings = Together(
        start=Scratch(GEOMETRY), schedule=schedule, precision="fp32", seed=0, sizes=sizes,
        tasks=tuple(LabelsOf(name=name, labels=labels) for name, labels in TASKS.items()),
    )  # fmt: skip
    return Job(folder=str(tmp_path / "stage"), blocks=str(tmp_path / "blocks"), settings=settings, compute=Compute())


def test_two_tasks_are_learned_at_once_and_each_opens_in_transformers(job):
    facts = run_job(job, Worker())
    history = facts["history"]
    for name, labels in TASKS.items():
        losses = [entry[name] for entry in history if name in entry]
        assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
        path = Path(job.folder) / MODEL / name
        opened = AutoModelForSequenceClassification.from_pretrained(path).eval()
        assert tuple(opened.config.id2label.values()) == labels
        rows = learnable(name, 60 if name == "topic" else 120)
        found = [opened(torch.tensor(rows.tokens[a:b][None].astype(np.int64))).logits.argmax().item()
                 for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)]  # fmt: skip
        own = 100 * float((np.array(found) == rows.labels).mean())
        assert history[-1][f"dev_{name}"] == pytest.approx(own)
    assert history[-1]["dev"] == pytest.approx((history[-1]["dev_topic"] + history[-1]["dev_length"]) / 2)


def test_batches_are_drawn_by_size_and_numbered_within_their_task():
    mixer, seen = BySize((60, 120)), Counter()
    for step in range(600):
        index, number = mixer.place(step)
        assert number == seen[index]
        seen[index] += 1
    assert 1.7 < seen[1] / seen[0] < 2.4
