"""Students: soft labels against transformers alone, and a stage two that learns them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import STAGE_TWO, small_flow, small_recipe
from test_encoders import similarity  # noqa: F401 - a fixture
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification

from tlm_ray import storage
from tlm_ray.runs.execution import make
from tlm_ray.runs.rows import Training
from tlm_ray.training.blocks import read_blocks
from tlm_ray.training.objectives import Labels
from tlm_ray.training.objectives.objective import Prediction


def taught(flow, task, **changes):
    """A student of seeds 0 and 1, and its stages, made."""
    student = Training(row="student", task=task, recipe=small_recipe(**changes), teachers=(0, 1))
    stages = student.stages(flow)
    make([stages.metrics], flow.execution.root)
    return stages


def said(folder, blocks, *, numbers=False):
    """What transformers alone makes of training rows, row by row."""
    model, found = AutoModelForSequenceClassification.from_pretrained(f"{folder}/model").eval(), []
    for start, end in zip(blocks.offsets[:-1], blocks.offsets[1:], strict=True):
        row = {"input_ids": torch.tensor(blocks.tokens[start:end][None].astype(np.int64))}
        if blocks.types is not None:
            row["token_type_ids"] = torch.tensor(blocks.types[start:end][None].astype(np.int64))
        with torch.inference_mode():
            logits = model(**row).logits[0]
        found.append((logits if numbers else logits.softmax(-1)).numpy())
    return np.array(found)


@pytest.mark.usefixtures("alone")
def test_a_student_learns_what_its_teachers_say_of_the_training_texts(data, tmp_path):
    flow = small_flow(data, tmp_path)
    stages, root = taught(flow, "topics", labels=Labels(smoothing=0.1)), flow.execution.root
    soft = stages.stage_two.inputs["taught"]
    teachers = [soft.inputs[f"teacher_{number}"] for number in (0, 1)]
    own = [flow.stages(small_recipe(labels=Labels(smoothing=0.1)), "topics", seed) for seed in (0, 1)]
    assert [each.fingerprint for each in teachers] == [each.stage_two.fingerprint for each in own]
    assert stages.stage_one.fingerprint == own[0].stage_one.fingerprint
    assert stages.stage_two.fingerprint != own[0].stage_two.fingerprint
    assert "labels" not in stages.stage_two.parameters, "soft labels are not smoothed"

    hard = read_blocks(storage.join(stages.blocks.folder(root), "train.arrow"))
    rows = read_blocks(storage.join(soft.folder(root), "train.arrow"))
    expected = np.mean([said(each.folder(root), hard) for each in teachers], axis=0)
    np.testing.assert_allclose(rows.labels, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(rows.tokens, hard.tokens)
    facts = soft.record(root)["facts"]
    assert facts == {"teachers": 2, "agree": pytest.approx((expected.argmax(1) == hard.labels).mean())}
    history = stages.stage_two.record(root)["facts"]["history"]
    assert history[0]["task"] == pytest.approx(1.1, abs=0.3), "begins near the entropy of three classes"


@pytest.mark.usefixtures("alone")
def test_a_student_of_numbers_learns_their_means(similarity, tmp_path):  # noqa: F811
    flow = replace(small_flow(similarity, tmp_path), metric="pearson_spearman")
    stages, root = taught(flow, "near"), flow.execution.root
    soft = stages.stage_two.inputs["taught"]
    rows = read_blocks(storage.join(soft.folder(root), "train.arrow"))
    teachers = [soft.inputs[f"teacher_{number}"].folder(root) for number in (0, 1)]
    expected = np.mean([said(each, rows, numbers=True)[:, 0] for each in teachers], axis=0)
    np.testing.assert_allclose(rows.labels, expected, rtol=1e-4, atol=1e-5)
    assert soft.record(root)["facts"] == {"teachers": 2}


def test_the_loss_of_soft_labels_is_their_cross_entropy():
    draw = torch.Generator().manual_seed(0)
    logits, soft = torch.randn(5, 3, generator=draw), torch.rand(5, 3, generator=draw).softmax(-1)

    class Head:
        is_regression = False

        def __call__(self, hidden, attention):
            return logits

    class Features:
        rectangle = (None, None)

    found = Labels().loss(Head(), Features(), Prediction(soft, None))
    assert found.item() == pytest.approx(-(soft * logits.log_softmax(-1)).sum().item(), rel=1e-6)
    one = torch.eye(3)[[0, 2, 1, 1, 0]]
    assert Labels().loss(Head(), Features(), Prediction(one, None)).item() == pytest.approx(
        cross_entropy(logits, torch.tensor([0, 2, 1, 1, 0]), reduction="sum").item(), rel=1e-6
    )


def test_students_of_other_teachers_are_other_students(data, tmp_path):
    flow, recipe = small_flow(data, tmp_path), small_recipe(stage_two=STAGE_TWO)
    trainings = [
        Training(row="x", task="topics", recipe=recipe, seed=seed, teachers=teachers)
        for seed, teachers in ((0, ()), (0, (0, 1)), (0, (0, 1, 2)), (1, (0, 1)))
    ]
    assert len({each.stages(flow).metrics.fingerprint for each in trainings}) == 4
