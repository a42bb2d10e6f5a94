"""Systems of the field written outside the package, in this file, by its public parts alone; each makes a row.

Nothing of the package is edited or patched. An own objective reads tokens, states, other heads or a teacher; an own
start reads the teacher's folder; an own recipe mixes tasks or cleans its corpus by numbers of its own.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from small import GEOMETRY, small_flow, small_recipe
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from tlm_ray import Flow, make
from tlm_ray.corpus.cleaning import Cleaning
from tlm_ray.training.encoders.starts import Scratch, Start
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.objectives import Clm, Mlm, Objective, Targets
from tlm_ray.training.sampler.mixers import Rates
from tlm_ray.training.settings import TASK_MODEL
from tlm_ray.training.tokens.masking import uniform


@dataclass(frozen=True)
class Swapped(Objective):
    """Tells swapped neighbours from tokens in place: deshuffling as detection, in 30 lines."""

    name: ClassVar[str] = "swapped"
    share: float = 0.15

    def head(self, weights):
        return nn.Linear(weights.config.hidden_size, 1)

    def prepare(self, rows, vocabulary, keys):
        length = rows.tokens.shape[1]
        draws = uniform(seed=keys.seed + 1, step=keys.step, rows=keys.rows, columns=length, draws=1)[0]
        first = (draws < self.share) & (np.roll(rows.attention, -2, axis=1) == 1)  # its neighbour is not the row's end
        first[:, [0, -1, -2]] = False  # nor is it [CLS], or before the first token
        first[:, 1:] &= ~first[:, :-1]
        tokens, order = rows.tokens.copy(), np.arange(length) + first - np.roll(first, 1, 1)
        tokens = np.take_along_axis(tokens, order, axis=1)
        moved = (order != np.arange(length)).astype(np.int64)
        inside = rows.attention == 1
        return replace(rows, tokens=tokens).with_targets(self.name, Targets(moved, inside, int(inside.sum())))

    def loss(self, head, features, prediction):
        logits = head(features.tokens.index_select(0, prediction.places)).squeeze(-1).float()
        return binary_cross_entropy_with_logits(logits, prediction.values.float(), reduction="sum")


@dataclass(frozen=True)
class Filled(Objective):
    """A generator of the mean token: replaces masked tokens by a fixed one before the encoder reads them."""

    name: ClassVar[str] = "filled"
    token: int = 9

    def head(self, weights):
        return nn.Linear(weights.config.hidden_size, weights.config.vocab_size)

    def prepare(self, rows, vocabulary, keys):
        inside = rows.attention == 1
        chosen = inside & (
            uniform(seed=keys.seed, step=keys.step, rows=keys.rows, columns=inside.shape[1], draws=1)[0] < 0.2
        )
        return rows.with_targets(self.name, Targets(rows.tokens, chosen, int(chosen.sum())))

    def loss(self, head, features, prediction):
        ids = features.inputs["input_ids"]
        features.read(ids.flatten().index_fill(0, prediction.places, self.token).view_as(ids))
        return cross_entropy(head(features.tokens[prediction.places]).float(), prediction.values, reduction="sum")


@dataclass(frozen=True)
class Imitated(Objective):
    """Learns the teacher's first state of each row, and reads the head of masked tokens beside its own."""

    name: ClassVar[str] = "imitated"
    needs_teacher: ClassVar[bool] = True

    def head(self, weights):
        return nn.Linear(weights.config.hidden_size, weights.config.hidden_size)

    def prepare(self, rows, vocabulary, keys):
        return rows.with_targets(self.name, Targets(np.zeros(len(rows.tokens)), None, len(rows.tokens)))

    def loss(self, head, features, prediction):
        assert Mlm.name in features.model.heads
        own, known = (each.rectangle[0][:, 0].float() for each in (features, features.teacher))
        return mse_loss(head(own), known, reduction="sum")


@dataclass(frozen=True)
class Halved(Start):
    """Starts from the teacher's weights, each halved."""

    source: str = ""

    @property
    def identity(self):
        return {"halved": True}

    def beside(self, teacher: str) -> "Halved":
        return replace(self, source=teacher)

    @contextmanager
    def weights(self, *, tokenizer: Any, labels: tuple[str, ...], seed: int) -> Iterator[TrainedWeights]:
        class Half(TrainedWeights):
            def _open(self, model: Any, **options: Any) -> Any:
                found = super()._open(model, **options)
                with torch.no_grad():
                    for p in (found[0] if isinstance(found, tuple) else found).parameters():
                        p.mul_(0.5)
                return found

        yield Half(self.source, labels=labels, seed=seed)


BERT = Scratch(replace(GEOMETRY, family="bert"))
TEACHER = small_recipe(start=BERT)
SYSTEMS = {
    "an objective of 30 lines": small_recipe(objectives=(Mlm(), Swapped())),
    "a generator before a detector": small_recipe(objectives=(Filled(), Swapped()), exported="swapped"),
    "a decoder with two losses in stage two": small_recipe(
        start=Scratch(replace(GEOMETRY, family="gpt2")), objectives=(Clm(),), auxiliary=(Clm(times=0.5), Swapped())
    ),
    "a teacher": small_recipe(start=BERT, objectives=(Mlm(), Imitated()), teacher=TEACHER),
    "a start from the teacher": small_recipe(start=Halved(), objectives=(Mlm(), Imitated()), teacher=TEACHER),
    "tasks mixed": small_recipe(tasks=("topics",), rates=Rates(temperature=2.0), objectives=(Mlm(), Swapped())),
    "a corpus cleaned": small_recipe(cleaning=Cleaning(sentences=2, words=4), objectives=(Swapped(), Mlm())),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_of_ones_own_makes_a_row(data, tmp_path, name):
    flow, recipe = small_flow(data, tmp_path), SYSTEMS[name]
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    one, two = (stage.record(flow.execution.root)["facts"] for stage in (stages.stage_one, stages.stage_two))
    logged = set().union(*one["history"])
    assert {f"general_{objective.name}" for objective in recipe.objectives} <= logged
    assert {f"task_{objective.name}" for objective in recipe.auxiliary} <= set().union(*two["history"])
    assert one["flops_counted"] > 0, "its operations are counted"
    assert 0 <= stages.metrics.record(flow.execution.root)["facts"]["test"] <= 100


def test_an_objective_takes_30_lines():
    assert len(inspect.getsource(Swapped).splitlines()) <= 30


@dataclass(frozen=True)
class TaskLast:
    """A mixer: general text in the first part of stage one, the task's in the rest."""

    general: int

    def place(self, step: int) -> tuple[int, int]:
        return (0, step) if step < self.general else (1, step - self.general)


@dataclass(frozen=True)
class KeptHead(Start):
    """A start that keeps a trained classifier's head."""

    source: str

    @property
    def identity(self):
        return {}

    @contextmanager
    def weights(self, *, tokenizer, labels, seed):
        yield TrainedWeights(self.source, labels=labels, seed=seed, keep_head=True)


@dataclass(frozen=True, kw_only=True)
class KeepsHead(Flow):
    """A flow whose stage two goes on with stage one's task head; the released code draws another."""

    def stage_two(self, recipe, blocks, stage_one, seed, taught=None):
        def make(folder, inputs):
            start = KeptHead(f"{inputs['stage_one']}/{TASK_MODEL}")
            return self.train(stage, folder, inputs, recipe.settings_two(seed, start))

        drawn = super().stage_two(recipe, blocks, stage_one, seed, taught)
        stage = replace(drawn, parameters=drawn.parameters | {"head": "kept"}, make=make)
        return stage


@pytest.mark.usefixtures("alone")
def test_a_mixer_and_a_flow_of_ones_own_make_a_row(data, tmp_path):
    plain, recipe = small_flow(data, tmp_path), small_recipe(mixer=TaskLast(general=9))
    flow = KeepsHead.like(plain)
    stages, usual = (one.stages(recipe, "topics", 0) for one in (flow, plain))
    assert stages.stage_one.fingerprint == usual.stage_one.fingerprint
    assert stages.stage_two.fingerprint != usual.stage_two.fingerprint
    turns = flow.stages(small_recipe(), "topics", 0).stage_one
    assert stages.stage_one.fingerprint != turns.fingerprint and stages.stage_one.cost == turns.cost
    make([stages.metrics, usual.metrics], str(tmp_path))
    history = stages.stage_one.record(str(tmp_path))["facts"]["history"]
    assert [("general_mlm" in entry, "task" in entry) for entry in history] == [(True, False)] * 9 + [(False, True)] * 3
    losses = [one.stage_two.record(str(tmp_path))["facts"]["history"][0]["task"] for one in (stages, usual)]
    assert losses[0] != losses[1], "another head begins"


def test_a_mixer_needs_both_streams():
    with pytest.raises(ValueError, match="mixer: chooses between general text and one task; give both"):
        small_recipe(mixer=TaskLast(general=9), k=0)


class OfSome(Mlm):
    """Masked tokens, of which those below 100 count; how many those are depends on the batch's values."""

    def loss(self, head, features, prediction):
        rare = (prediction.values < 100).nonzero()[:, 0]
        return super().loss(
            head, features, prediction._replace(values=prediction.values[rare], places=prediction.places[rare])
        )


@pytest.mark.usefixtures("alone")
def test_a_record_names_objectives_whose_operations_cannot_be_counted(data, tmp_path):
    stages = small_flow(data, tmp_path).stages(small_recipe(objectives=(OfSome(),)), "topics", 0)
    make([stages.stage_one], str(tmp_path))
    facts = stages.stage_one.record(str(tmp_path))["facts"]
    assert facts["flops_counted"] == 0 and facts["flops_unknown"] == ["labels", "mlm"]
