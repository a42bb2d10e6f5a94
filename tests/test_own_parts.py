"""Parts that a user defines in a file of his own, without editing the package: through `run` to a table's row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from small import GEOMETRY, laid_out, read_selection, small_flow, small_recipe
from torch import nn
from tracked import empty_store
from transformers import AutoConfig, DistilBertConfig, DistilBertForMaskedLM

from tlm_ray import Flow, Training, View, run, storage
from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.evaluation.scores import Metric
from tlm_ray.plain import Bm25Neighbours, TfIdf
from tlm_ray.report import Results
from tlm_ray.retrieval.methods import Method, Search
from tlm_ray.retrieval.selection import write_drawn
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.records import Records
from tlm_ray.training.encoders.families import Family, Geometry
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.objectives import Mlm, Objective, Targets


@dataclass(frozen=True, kw_only=True)
class Shortest(Method):
    """A method: the shortest passages, whatever the task."""

    name: ClassVar[str] = "shortest"
    passages: int = 40

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        store = PassageStore.open(inputs["passages"])
        sizes = pc.binary_length(store.read(0, len(store))["text"]).to_numpy()
        shortest = np.argsort(sizes, kind="stable")[: self.passages]
        return write_drawn(folder, store, shortest, np.zeros(len(shortest), np.int32), -sizes[shortest], run)


@dataclass(frozen=True)
class RowLength(Objective):
    """An objective with a head of its own: whether a row has more than `tokens` tokens, by its first hidden state."""

    name: ClassVar[str] = "length"
    tokens: int = 20

    def head(self, weights):
        return nn.Linear(weights.config.hidden_size, 2)

    def prepare(self, rows, vocabulary, keys):
        long = (rows.attention.sum(axis=1) > self.tokens).astype(np.int64)
        return rows.with_targets(self.name, Targets(long, None, len(long)))

    def loss(self, head, features, prediction):
        hidden, _ = features.rectangle
        return nn.functional.cross_entropy(head(hidden[:, 0]).float(), prediction.values, reduction="sum")


@dataclass(frozen=True)
class Distil(Family):
    """An encoder family: DistilBERT, whose configuration has names of its own."""

    name: ClassVar[str] = "distil"

    def config(self, geometry: Geometry, **common: Any) -> DistilBertConfig:
        others = {name: value for name, value in common.items() if name not in geometry.common}
        return DistilBertConfig(
            dim=geometry.width, n_layers=geometry.layers, n_heads=geometry.heads, hidden_dim=geometry.intermediate,
            max_position_embeddings=geometry.positions, dropout=geometry.dropout, **others,
        )  # fmt: skip

    def parameters(self, geometry: Geometry, *, vocabulary: int) -> int:
        width, inner = geometry.width, geometry.intermediate
        layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
        return (vocabulary + geometry.positions) * width + geometry.layers * layer + width**2 + 5 * width + vocabulary


@dataclass(frozen=True)
class Momentum:
    """An optimizer: stochastic gradient descent with momentum, which keeps one tensor per parameter."""

    share: float = 0.9

    def make(self, model, *, weight_decay):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=self.share, weight_decay=weight_decay)


def half_right(gold: np.ndarray, predicted: np.ndarray) -> float:
    return 0.5 + 0.5 * float((gold == predicted).mean())


HALF = Metric(name="half_right", compute=half_right)


@pytest.mark.usefixtures("no_cluster")
def test_a_method_objective_family_optimizer_and_metric_of_ones_own_make_a_row(data, tmp_path):
    recipe = small_recipe(
        method=Shortest(passages=30),
        objectives=(Mlm(), RowLength(tokens=30)),
        start=Scratch(replace(GEOMETRY, family=Distil())),
        optimizer=Momentum(),
    )
    flow = replace(small_flow(data, tmp_path / "root", workers=2), metric=HALF)
    training = Training(row="all my own", task="topics", recipe=recipe, seed=0)
    outcome = run([training], flow, name="own_parts", tracking_uri=empty_store(tmp_path))

    (cell,) = outcome.cells()
    assert (cell.row, cell.task, cell.metric) == ("all my own", "topics", "half_right")
    assert 50 <= cell.mean <= 100
    files = outcome.publish(outcome.results(View()), f"{tmp_path}/out")
    assert all(Path(uri).name.startswith("own_parts.") for uri in files.values())
    assert json.loads(Path(f"{tmp_path}/out/own_parts.json").read_text())["cells"][0]["scores"] == list(cell.scores)

    stages, root = flow.stages(recipe, "topics", 0), flow.execution.root
    selection = read_selection(stages.neighbours.folder(root))
    assert len(selection) == 30
    one = stages.stage_one.record(root)
    assert {"general_mlm", "general_length"} <= one["facts"]["history"][0].keys()
    assert {"task_mlm", "task_length", "task", "dev"} <= one["facts"]["history"][-1].keys()
    assert one["facts"]["flops_counted"] > 0
    config = AutoConfig.from_pretrained(storage.join(stages.stage_one.folder(root), "model"))
    assert config.model_type == "distilbert"
    parameters = DistilBertForMaskedLM(config).num_parameters()
    assert recipe.start.parameters(vocabulary=config.vocab_size) == parameters
    settings = json.dumps(stages.stage_one.recipe["parameters"])
    assert all(part in settings for part in ("RowLength", "Distil", "Momentum"))  # the method names the neighbours


def test_settings_of_ones_own_parts_identify_a_training(data, tmp_path):
    flow = small_flow(data, tmp_path)
    changes = [
        {},
        {"objectives": (Mlm(), RowLength())},
        {"objectives": (Mlm(), RowLength(tokens=9))},
        {"objectives": (RowLength(),)},
        {"optimizer": Momentum()},
        {"optimizer": Momentum(share=0.5)},
        {"start": Scratch(replace(GEOMETRY, family=Distil()))},
        {"method": Shortest()},
        {"method": Shortest(passages=7)},
    ]
    last = [laid_out(flow, **change).metrics for change in changes]
    assert len({stage.fingerprint for stage in last}) == len(changes)


def share_right(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float((gold == predicted).mean())


def share_wrong(gold: np.ndarray, predicted: np.ndarray) -> float:
    return 1 - share_right(gold, predicted)


@pytest.mark.usefixtures("alone")
def test_a_mended_metric_of_a_new_version_is_in_cells_and_differences_alike(data, tmp_path):
    """As a user mends it: name and root stay, its code and its version are others."""
    rows: dict[str, Any] = {"trained": small_recipe(), TfIdf.name: TfIdf(), Bm25Neighbours.name: Bm25Neighbours()}

    def table(metric: Metric) -> Results:
        flow = replace(small_flow(data, tmp_path), metric=metric)
        trainings = [Training(row=row, task="topics", recipe=recipe) for row, recipe in rows.items()]
        stages = {one: one.stages(flow) for one in trainings}
        make([each.metrics for each in stages.values()], flow.execution.root)
        outcome = Outcome(name="x", stages=stages, records=Records(flow.execution.root), tracker=None, metric=metric)  # type: ignore[arg-type]
        for own in stages.values():
            for stage in own.trained:
                kept.setdefault(stage.name, []).append(stage.record(flow.execution.root)["facts"]["history"][-1])
        return outcome.results(View(against="trained"))

    kept: dict[str, list[dict[str, float]]] = {}
    right = table(Metric(name="mine", compute=share_right))
    wrong = table(Metric(name="mine", compute=share_wrong, version=2))
    assert all(right.of_row(row)["topics"].mean != wrong.of_row(row)["topics"].mean for row in rows)
    for results in (right, wrong):
        means = {row: results.of_row(row)["topics"].mean for row in results.rows}
        for each in results.differences:
            assert each.mean == pytest.approx(means[each.row] - means[each.other], abs=1e-9)
    for stage, (first, second) in kept.items():
        assert first["dev"] != second["dev"], f"{stage}: what a record says is of the code that it names"
    with pytest.raises(ValueError, match=r"metric 'mine': gives .* was recorded; raise its version"):
        table(Metric(name="mine", compute=share_wrong))


def test_a_metric_of_ones_own_makes_another_stage_of_the_embedded_task_too():
    plain, own = (Flow(execution=Execution(root=""), metric=metric).task("docstrings") for metric in ("", HALF))
    assert plain.parameters["metric"] == "accuracy" and own.parameters["metric"] == "half_right"
    assert plain.fingerprint != own.fingerprint
