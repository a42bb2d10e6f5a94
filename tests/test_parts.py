"""Parts of one's own, as a user defines them: objectives, a family of encoders, an optimizer.

Each is trained, interrupted, exported and opened by transformers.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from small import small_recipe
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode
from trainings import (
    GEOMETRY,
    SCHEDULE,
    assert_same_run,
    make_batches,
    make_model,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_interrupted,
    run_whole,
    stage_one,
)
from transformers import AutoModel, AutoModelForMaskedLM, DistilBertConfig, PretrainedConfig

from tlm_ray.runs.stages.stage import plain
from tlm_ray.training.encoders.families import Family, Geometry
from tlm_ray.training.loop.checkpoints import read_checkpoint
from tlm_ray.training.loop.optimizers import parameter_groups
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Labels, Mlm, Objective, Targets


@dataclass(frozen=True)
class Repeated(Objective):
    """Is a token one that the row has more than once?"""

    name: ClassVar[str] = "repeated"

    def head(self, weights):
        return torch.nn.Linear(weights.config.hidden_size, 1)

    def prepare(self, rows, vocabulary, keys):
        chosen = ~np.isin(rows.tokens, vocabulary.special_ids)
        values = (rows.tokens[:, :, None] == rows.tokens[:, None, :]).sum(axis=2) > 1
        return rows.with_targets(self.name, Targets(values, chosen, int(chosen.sum())))

    def loss(self, head, features, prediction):
        logits = head(features.tokens.index_select(0, prediction.places)).squeeze(-1).float()
        return binary_cross_entropy_with_logits(logits, prediction.values.float(), reduction="sum")


@dataclass(frozen=True)
class FirstToken(Objective):
    """Is the first token's number odd?"""

    name: ClassVar[str] = "first_token"

    def head(self, weights):
        return torch.nn.Linear(weights.config.hidden_size, 1)

    def prepare(self, rows, vocabulary, keys):
        return rows.with_targets(self.name, Targets(rows.tokens[:, 0] % 2, None, len(rows.tokens)))

    def loss(self, head, features, prediction):
        hidden, _ = features.rectangle
        logits = head(hidden[:, 0]).squeeze(-1).float()
        return binary_cross_entropy_with_logits(logits, prediction.values.float(), reduction="sum")


@dataclass(frozen=True)
class DistilBert(Family):
    """DistilBERT (Sanh et al. 2019): BERT without token types and pooler."""

    name: ClassVar[str] = "distilbert"

    def config(self, geometry: Geometry, **common: Any) -> PretrainedConfig:
        own = {"dim": geometry.width, "n_layers": geometry.layers, "n_heads": geometry.heads}
        own |= {"hidden_dim": geometry.intermediate, "dropout": geometry.dropout}
        shared = ("vocab_size", "max_position_embeddings", "initializer_range", "pad_token_id", "id2label", "label2id")
        return DistilBertConfig(
            attention_dropout=geometry.dropout,
            seq_classif_dropout=0.0,
            **own,
            **{name: value for name, value in common.items() if name in shared},
        )

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        width, inner = geometry.width, geometry.intermediate
        layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
        embeddings = (vocabulary + geometry.positions + 2) * width
        return embeddings + geometry.layers * layer + (width + 1) * width + 2 * width + vocabulary


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum."""

    momentum: float = 0.9

    def make(self, model, *, weight_decay):
        return torch.optim.SGD(parameter_groups(model, weight_decay), momentum=self.momentum)


GENTLE = replace(SCHEDULE, learning_rate=1e-3)
OWN = {
    "an objective of tokens": stage_one(schedule=GENTLE, objectives=(Repeated(),)),
    "an objective of rows": stage_one(schedule=GENTLE, objectives=(FirstToken(),)),
    "an objective beside the paper's": stage_one(schedule=GENTLE, objectives=(Mlm(), Repeated())),
    "a family": stage_one(schedule=GENTLE, geometry=replace(GEOMETRY, family=DistilBert())),
    "an optimizer": stage_one(schedule=GENTLE, optimizer=Momentum()),
}
LOGGED = {
    "an objective of tokens": {"general_repeated", "task_repeated", "task"},
    "an objective of rows": {"general_first_token", "task_first_token", "task"},
    "an objective beside the paper's": {"general_mlm", "general_repeated", "task_mlm", "task_repeated", "task"},
    "a family": {"general_mlm", "task_mlm", "task"},
    "an optimizer": {"general_mlm", "task_mlm", "task"},
}
OPENED = {name: AutoModelForMaskedLM if "mlm" in str(LOGGED[name]) else AutoModel for name in OWN}


@pytest.mark.parametrize("name", OWN)
def test_a_part_of_ones_own_trains_goes_on_where_it_was_and_opens_in_transformers(name, tmp_path):
    settings = OWN[name]
    settings = replace(settings, start=replace(settings.start, geometry=replace(settings.start.geometry, dropout=0.1)))
    whole = run_whole(settings)
    assert_same_run(whole, run_interrupted(tmp_path / "run", [6, 11], lambda: make_trainer(settings)))
    first, last = (
        {loss: next(e[loss] for e in entries if loss in e) for loss in LOGGED[name]}
        for entries in (whole.progress.history, whole.progress.history[::-1])
    )
    assert sum(last.values()) < sum(first.values())

    whole.model.export(settings.exports["model"], tmp_path / "model", precision="fp32")
    opened = OPENED[name].from_pretrained(tmp_path / "model").eval()
    assert opened.config.trained_precision == "fp32"
    inputs, _ = to_device(make_batches(settings).batch(0), "cpu")
    with torch.no_grad():
        encoder = opened.base_model
        expected = whole.model.eval().encode(inputs)
        inside = inputs["attention_mask"].bool()
        torch.testing.assert_close(encoder(**inputs).last_hidden_state[inside], expected[inside], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OWN)
def test_the_operations_of_a_part_of_ones_own_are_those_of_torchs_counter(name):
    model = make_model(OWN[name]).on("cpu")
    flops = make_trainer(OWN[name]).flops
    for step in range(3):
        batch = make_batches(OWN[name]).batch(step)
        model.train()
        with FlopCounterMode(display=False) as counter:
            sum(model(*to_device(batch, "cpu")).values()).backward()
        assert flops.computed(batch) == counter.get_total_flops()


@pytest.mark.parametrize("name", ["an objective of tokens", "an objective of rows", "a family"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
def test_a_part_of_ones_own_learns_the_same_of_parts_of_a_batch(name):
    whole, parts = run_whole(OWN[name]), run_whole(OWN[name], Worker(micro_rows=3, packed=name != "a family"))
    for one, other in zip(whole.progress.history, parts.progress.history, strict=True):
        assert {n: other[n] for n in LOGGED[name] & other.keys()} == pytest.approx(
            {n: one[n] for n in LOGGED[name] & one.keys()}, rel=1e-4
        )


def test_an_optimizers_state_is_kept_by_the_names_of_parameters(tmp_path):
    trainer = run_interrupted(tmp_path, [5], lambda: make_trainer(OWN["an optimizer"]))
    names = {f"{name}.momentum_buffer" for name, _ in trainer.model.named_parameters()}
    assert read_checkpoint(str(tmp_path)).tensors["optimizer.safetensors"].keys() == names


@pytest.mark.parametrize("vocabulary", [80, 3000])
def test_a_familys_parameters_are_those_of_transformers(vocabulary):
    geometry = replace(GEOMETRY, family=DistilBert())
    config = DistilBert().config(geometry, **(geometry.common | {"vocab_size": vocabulary, "pad_token_id": 0}))
    model = AutoModelForMaskedLM.from_config(config)
    assert geometry.parameters(vocabulary=vocabulary) == sum(p.numel() for p in model.parameters())


def test_parts_identify_what_was_made_with_them_and_the_papers_own_do_not():
    base = small_recipe().settings_one(0).identity
    own = small_recipe(objectives=(Mlm(), Repeated()), optimizer=Momentum()).settings_one(0).identity
    assert {name: own[name] for name in base} == base
    assert plain({name: own[name] for name in own.keys() - base.keys()}, "stage_one") == {
        "objectives": [{"type": "Mlm", "masking": plain(Mlm().masking, "")}, {"type": "Repeated"}],
        "optimizer": {"type": "Momentum", "momentum": 0.9},
    }


def test_objectives_need_names_of_their_own():
    with pytest.raises(ValueError, match="give one or more, each with a different name"):
        small_recipe(objectives=(Mlm(), Mlm()))
    with pytest.raises(ValueError, match="give one or more"):
        small_recipe(objectives=())


def test_general_text_has_no_labels_to_learn():
    settings = stage_one(objectives=(Labels(),), rho1=None)
    with pytest.raises(ValueError, match="labels: these rows have no labels; general text cannot train this objective"):
        make_batches(settings).batch(0)


def test_a_family_that_is_no_family_is_refused():
    with pytest.raises(
        ValueError,
        match="family 'gpt': allowed are albert, bert, distilbert, electra, gpt2, modernbert, t5, or a Family",
    ):
        replace(GEOMETRY, family="gpt")


@dataclass(frozen=True)
class Swapped(Objective):
    """Is the row's second token odd? Makes general rows a token longer and gives them types; leaves task rows out."""

    name: ClassVar[str] = "swapped"
    weight: float = 3.0  # type: ignore[misc]

    def head(self, weights):
        return torch.nn.Linear(weights.config.hidden_size, 2)

    def prepare(self, rows, vocabulary, keys):
        if rows.labels is not None:
            return rows
        longer = [np.concatenate([each[:, :1], each], axis=1) for each in (rows.tokens, rows.attention)]
        turned = (rows.tokens[:, 1] % 2).astype(np.int64)
        marks = np.stack([turned, 1 - turned], axis=1)
        rows = replace(rows, tokens=longer[0], attention=longer[1], types=np.zeros_like(longer[0]) + turned[:, None])
        return rows.with_targets(self.name, Targets(marks, None, len(marks)))

    def loss(self, head, features, prediction):
        hidden, _ = features.rectangle
        return binary_cross_entropy_with_logits(head(hidden[:, 0]).float(), prediction.values.float(), reduction="sum")


def test_what_an_objective_makes_of_rows_is_what_the_model_gets():
    settings = stage_one(schedule=GENTLE, objectives=(Swapped(), Mlm()))
    batches, clean = make_batches(settings), make_batches(stage_one(schedule=GENTLE))
    batch, before = batches.batch(0), clean.batch(0)
    assert batch.tokens.shape == batch.attention.shape == batch.types.shape
    assert (batch.attention.sum(axis=1) == before.attention.sum(axis=1) + 1).all()
    assert batch.real_tokens == before.real_tokens + len(batch.tokens) == batch.tokens_total
    assert (batch.types.max(axis=1) == batch.targets["swapped"].values[:, 0]).all()


def test_an_objective_may_leave_a_stream_out_and_weighs_what_it_says():
    settings = stage_one(schedule=GENTLE, objectives=(Swapped(), Mlm()))
    assert dict(settings.losses["general"].weights) == {Swapped(): 3.0, Mlm(): 1.0}
    trainer = run_whole(settings)
    logged = {name for entry in trainer.progress.history for name in entry if name.startswith(("task", "general"))}
    assert logged == {"general_swapped", "general_mlm", "task_mlm", "task"}
    assert trainer.progress.flops > 0, "values of two columns are counted like others"


@dataclass(frozen=True)
class Versioned:
    version: ClassVar[int] = 2
    rate: float = 1.0


def test_a_part_of_ones_own_may_have_a_version():
    assert plain(Versioned(), "x") == {"type": "Versioned", "version": 2, "rate": 1}
    assert plain(Momentum(), "x") == {"type": "Momentum", "momentum": 0.9}
