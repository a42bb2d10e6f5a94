"""Several tasks in one stage one: rates by T5's formulas, one united selection, a head and a stage two per task."""

import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small import GEOMETRY, read_selection, small_flow, small_recipe
from small_data import TOPICS
from test_pages import ROOT
from transformers import AutoModelForMaskedLM

from tlm_ray import Data, Training, make
from tlm_ray.runs.facts import facts_of
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.stages.records import Records
from tlm_ray.training.encoders.starts import Scratch, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Mlm, TaskLabels
from tlm_ray.training.sampler.mixers import Rates, Shares

GLUE = [8_551, 67_349, 3_668, 363_846, 5_749, 392_702, 104_743, 2_490]


def test_rates_are_those_of_t5():
    """Raffel et al. 2020, section 3.5.2, worked out by hand for K = 2^16."""
    expected = [0.0303, 0.2319, 0.0130, 0.2319, 0.0203, 0.2319, 0.2319, 0.0088]
    np.testing.assert_allclose(Rates(limit=2**16).of(GLUE), expected, atol=5e-5)
    plain = np.array(GLUE) / sum(GLUE)
    np.testing.assert_allclose(Rates().of(GLUE), plain)
    np.testing.assert_allclose(Rates(temperature=2.0).of(GLUE), plain**0.5 / (plain**0.5).sum())
    np.testing.assert_allclose(Rates(temperature=1e-3).of([5, 5, 5]), [1 / 3] * 3)
    np.testing.assert_allclose(Rates(equal=True).of(GLUE), [1 / 8] * 8)


@pytest.mark.parametrize("rho1", [0, 3])
def test_batches_come_at_their_rates_each_once_and_in_order(rho1):
    rates = Rates(limit=2**16).of(GLUE)
    mixer, steps = Shares(rho1, rates), 4 * 3000
    places = [mixer.place(step) for step in range(steps)]
    for stream in range(8 + bool(rho1)):
        assert (own := [number for index, number in places if index == stream]) == list(range(len(own)))
    if rho1:
        assert {index for step, (index, _) in enumerate(places) if (step + 1) % 4} == {0}
    tasks = np.array([index for index, _ in places if index or not rho1]) - bool(rho1)
    for count in (50, 500, len(tasks)):
        apart = np.bincount(tasks[:count], minlength=8) - count * np.array(rates)
        assert np.abs(apart).max() < 3
    assert [Shares(rho1, rates).place(step) for step in (0, 700, 11_999)] == [places[i] for i in (0, 700, 11_999)]


@pytest.fixture
def two(data, tmp_path, alone) -> Path:
    """The small data, and a second task of two classes, whose test set has a passage that the first task retrieves."""
    shutil.copytree(data, tmp_path / "data")
    own, random = tmp_path / "data" / "tasks" / "is.sea", np.random.default_rng(3)
    own.mkdir()
    flow = small_flow(data, tmp_path / "root")
    first = flow.stages(small_recipe(k=10), "topics", 0).neighbours
    make([first], flow.execution.root)
    retrieved = read_selection(first.folder(flow.execution.root))["text"].to_pylist()
    for split, rows in (("train", 40), ("dev", 20), ("test", 20)):
        labels = [("no", "yes")[i % 2] for i in range(rows)]
        words = {"yes": TOPICS["sea"], "no": TOPICS["sky"] + TOPICS["kitchen"]}
        texts = [" ".join(random.choice(words[label], 8)) + f" {split} {i}." for i, label in enumerate(labels)]
        if split == "test":
            texts[0] = retrieved[0]
        pq.write_table(pa.table({"text": texts, "label": labels}), own / f"{split}.parquet")
    return tmp_path / "data"


def test_two_tasks_share_a_stage_one_and_each_has_its_own_stage_two(two, tmp_path):
    flow, both = small_flow(two, tmp_path / "root"), ("topics", "is.sea")
    recipe = small_recipe(tasks=both, k=10)
    rows = {name: Training(row="mixed", task=name, recipe=recipe) for name in both}
    stages = {name: one.stages(flow) for name, one in rows.items()}
    make([own.metrics for own in stages.values()], flow.execution.root)
    topics, sea = stages.values()
    root = flow.execution.root
    assert topics.stage_one.fingerprint == sea.stage_one.fingerprint
    assert topics.stage_two.fingerprint != sea.stage_two.fingerprint

    facts = topics.stage_one.record(root)["facts"]
    assert {"general_mlm", "topics_mlm", "topics", "is.sea_mlm", "is.sea"} <= set().union(*facts["history"])
    last = facts["history"][-1]
    assert last["dev"] == pytest.approx((last["dev_topics"] + last["dev_is.sea"]) / 2)
    model = AutoModelForMaskedLM.from_pretrained(f"{topics.stage_one.folder(root)}/model")
    assert sum(p.numel() for p in model.parameters()) < facts["parameters"], "which has the heads of both tasks"

    table = read_selection(topics.neighbours.folder(root))
    texts, ranks = table["text"].to_pylist(), table["rank"].to_pylist()
    assert len(set(texts)) == len(texts) and ranks == sorted(ranks)
    best: dict[str, int] = {}
    for own in topics.neighbours.inputs.values():
        if own.name == "neighbours":
            found = read_selection(own.folder(root))
            for text, rank in zip(found["text"].to_pylist(), found["rank"].to_pylist(), strict=True):
                best[text] = min(rank, best.get(text, rank))
    held_out = pq.read_table(two / "tasks" / "is.sea" / "test.parquet")["text"].to_pylist()[0]
    assert held_out in best, "the other task's search has chosen it"
    del best[held_out]
    assert dict(zip(texts, ranks, strict=True)) == best

    made = {one: stages[name] for name, one in rows.items()}
    outcome = Outcome(name="x", stages=made, records=Records(root), tracker=None)  # type: ignore[arg-type]
    seconds = [stages[name].stage_two.record(root)["facts"]["seconds"] for name in both]
    shared = [outcome.facts(one)["seconds"] - own for one, own in zip(rows.values(), seconds, strict=True)]
    assert shared == pytest.approx([facts["seconds"] / 2] * 2), "each bears half of the shared stage"

    student = replace(rows["topics"], teaching=Teaching(seeds=(1,), splices=0))
    made = student.stages(flow)
    make([made.metrics], root)
    soft, teacher = made.stage_two.inputs["taught"], flow.stages(recipe, "topics", 1)
    labels = soft.inputs["teacher_0"].record(root)["facts"]["worker_seconds"]
    others = sum(each.record(root)["seconds"] for each in (soft, soft.inputs["rows"])) + labels
    one, two_of_it = (each.record(root)["facts"]["seconds"] for each in (teacher.stage_one, teacher.stage_two))
    taught = facts_of(student, made, Records(root))["seconds_taught"]
    assert taught == pytest.approx(one / 2 + two_of_it + others), "and half of its teacher's"


def test_a_task_may_be_new_in_stage_two(two, tmp_path):
    flow = small_flow(two, tmp_path / "root")
    stages = flow.stages(small_recipe(tasks=("is.sea",)), "topics", 0)
    assert len([one for one in stages.neighbours.inputs.values() if one.name == "task"]) == 2, "topics' texts stay out"
    make([stages.metrics], flow.execution.root)
    assert "topics" not in stages.stage_one.record(flow.execution.root)["facts"]["history"][-1]
    assert stages.metrics.record(flow.execution.root)["facts"]["test"] > 0


def test_the_experiments_rows_share_what_they_can(two, tmp_path):
    kind = runpy.run_path(str(ROOT / "experiments" / "mixing.py"))["Mixing"]
    flow, base = small_flow(two, tmp_path / "root"), small_recipe()

    class Small(kind):
        def recipe(self, task, flow, mixture):
            return base

    options = {"task_root": str(two / "tasks"), "corpus": [str(two / "corpus")]}
    table = Small(data=Data(tasks=["topics", "is.sea"], **options), share=0.5)
    rows = {task: table.recipes(task, flow) for task in ("topics", "is.sea")}
    assert rows["topics"]["mixed"].stage_one.steps == 12 == base.stage_one.steps
    assert rows["topics"]["without its own"].stage_one.steps == 6
    assert [rows[task]["without its own"].tasks for task in rows] == [("is.sea",), ("topics",)]
    layouts = {
        row: {flow.stages(rows[task][row], task, 0).stage_one.fingerprint for task in rows} for row in rows["topics"]
    }
    assert {row: len(found) for row, found in layouts.items()} == {
        "each alone": 2,
        "mixed": 1,
        "mixed, T = 2": 1,
        "mixed, equal": 1,
        "without its own": 2,
    }
    with pytest.raises(ValueError, match="--tasks: give two or more"):
        kind(data=Data(tasks=["topics"], **options))
    with pytest.raises(ValueError, match="--share 0: must be above 0 and at most 1"):
        kind(data=Data(tasks=["topics", "is.sea"], **options), share=0)


@pytest.mark.parametrize("tasks", [["topics", "is.sea"], ["is.sea", "topics"]])
def test_a_shared_stage_one_has_positions_for_the_longest_rows(two, tmp_path, tasks):
    long = Scratch(replace(GEOMETRY, positions=96, intermediate=32))

    class Long(runpy.run_path(str(ROOT / "experiments" / "mixing.py"))["Mixing"]):
        def recipe(self, task, flow, mixture):
            return small_recipe(task_tokens=96, start=long) if task == "is.sea" else small_recipe()

    table = Long(data=Data(tasks=tasks, task_root=str(two / "tasks"), corpus=[str(two / "corpus")]), rows=["mixed"])
    mixed = table.recipes("topics", small_flow(two, tmp_path))["mixed"]
    first = long if tasks[0] == "is.sea" else Scratch(replace(GEOMETRY, positions=96))
    assert (mixed.start, mixed.task_tokens, mixed.tasks) == (first, 96, tuple(tasks))


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="tasks a/x, b/x: name each once, by different last parts"):
        small_recipe(tasks=("a/x", "b/x"))
    with pytest.raises(
        ValueError, match="tasks: 'general' has a meaning in the history of a training; rename the task"
    ):
        small_recipe(tasks=("general", "b"))
    with pytest.raises(ValueError, match="tasks 'ab': must be a tuple of names"):
        small_recipe(tasks="ab")
    with pytest.raises(ValueError, match="tasks: are learned in a stage one with task batches"):
        small_recipe(tasks=("a", "b"), one_stage=True)
    with pytest.raises(ValueError, match="tasks: are trained together from the start; give neither after nor teacher"):
        small_recipe(tasks=("a", "b"), after=small_recipe())
    with pytest.raises(ValueError, match="rates limit -1: must be a whole number of 0 or more"):
        Rates(limit=-1)
    with pytest.raises(ValueError, match="rates temperature 0: must be above 0"):
        Rates(temperature=0)


@pytest.mark.parametrize("order", [((), ("a", "b", "c")), (("a", "b", "c"), ())])
def test_a_regression_and_classes_may_be_mixed(order):
    """Whichever comes first, each head has its own kind."""
    config = scratch_config(GEOMETRY, vocabulary=80, pad_id=0, labels=order[0])
    heads = [TaskLabels(number=number, labels=labels) for number, labels in enumerate(order)]
    model = JointModel(RandomWeights(config, seed=0), (*heads, Mlm()))
    assert [model.heads[head.name].is_regression for head in heads] == [not head.labels for head in heads]
