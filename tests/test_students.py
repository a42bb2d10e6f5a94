"""Students: soft labels against transformers alone, and a stage two that learns them."""

import json
import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import STAGE_TWO, small_flow, small_recipe
from test_encoders import similarity  # noqa: F401 - a fixture
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from tlm_ray import TfIdf, present, storage
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.runs.cli.options import Data, OneTask, Place
from tlm_ray.runs.cli.recipe_options import Changes
from tlm_ray.runs.facts import facts_of
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.objectives import Labels
from tlm_ray.training.objectives.objective import Prediction
from tlm_ray.training.students import soft_labels, teaching
from tlm_ray.training.students.rows import write_rows
from tlm_ray.training.students.soft_labels import chunks_of, write_soft_labels, write_teacher_labels
from tlm_ray.training.students.splicing import spliced
from tlm_ray.training.students.teaching import Teacher
from tlm_ray.training.tokens.blocks import Blocks, read_blocks

MAIN_TABLE = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "main_table.py"))["MainTable"]


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Let teachers label few rows at a time, some of them the last training row and a made one."""
    monkeypatch.setattr(soft_labels, "CHUNK_ROWS", 7)


def taught(flow, task, **changes):
    """A student of seeds 0 and 1, and its stages, made."""
    student = Training(row="student", task=task, recipe=small_recipe(**changes), teaching=Teaching(seeds=(0, 1)))
    stages = student.stages(flow)
    make([stages.metrics], flow.execution.root)
    return stages


def teachers_of(soft):
    """The two trainings whose predictions are the soft labels."""
    return [soft.inputs[f"teacher_{number}"].inputs["teacher"] for number in (0, 1)]


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
    teachers = teachers_of(soft)
    own = [flow.stages(small_recipe(labels=Labels(smoothing=0.1)), "topics", seed) for seed in (0, 1)]
    assert [each.fingerprint for each in teachers] == [each.stage_two.fingerprint for each in own]
    assert stages.stage_one.fingerprint == own[0].stage_one.fingerprint
    assert stages.stage_two.fingerprint != own[0].stage_two.fingerprint
    assert "labels" not in stages.stage_two.parameters, "soft labels are not smoothed"

    hard = read_blocks(storage.join(stages.blocks.folder(root), "train.arrow"))
    rows = read_blocks(storage.join(soft.folder(root), "train.arrow"))
    expected = np.mean([said(each.folder(root), rows) for each in teachers], axis=0)
    np.testing.assert_allclose(rows.labels, expected, rtol=1e-4, atol=1e-6)
    assert len(rows) == 4 * len(hard), "each row whole, and begun three times"
    np.testing.assert_array_equal(rows.tokens[: len(hard.tokens)], hard.tokens)
    np.testing.assert_array_equal(rows.tokens[len(hard.tokens) : rows.offsets[-1]], spliced(hard, 3).tokens)
    facts = soft.record(root)["facts"]
    assert facts == {"teachers": 2, "agree": pytest.approx((expected.argmax(1)[: len(hard)] == hard.labels).mean())}
    longer, usual = (each.stage_two.parameters["schedule"] for each in (stages, own[0]))
    assert (longer.steps, longer.warmup_steps) == (2 * usual.steps, 2 * usual.warmup_steps)
    history = stages.stage_two.record(root)["facts"]["history"]
    assert history[0]["task"] == pytest.approx(1.1, abs=0.3), "begins near the entropy of three classes"


@pytest.mark.usefixtures("alone")
def test_a_student_of_numbers_learns_their_means(similarity, tmp_path):  # noqa: F811
    flow = replace(small_flow(similarity, tmp_path), metric="pearson_spearman")
    stages, root = taught(flow, "near"), flow.execution.root
    soft = stages.stage_two.inputs["taught"]
    rows = read_blocks(storage.join(soft.folder(root), "train.arrow"))
    teachers = [each.folder(root) for each in teachers_of(soft)]
    expected = np.mean([said(each, rows, numbers=True)[:, 0] for each in teachers], axis=0)
    np.testing.assert_allclose(rows.labels, expected, rtol=1e-4, atol=1e-5)
    assert soft.record(root)["facts"] == {"teachers": 2}


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), times=st.integers(1, 3), paired=st.booleans())
def test_a_spliced_row_begins_as_one_row_and_ends_as_another(lengths, times, paired):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(offsets[-1], dtype=np.int32)  # a token says whose it is, and where
    rows = Blocks(tokens, offsets, (tokens % 2).astype(np.uint8) if paired else None)
    found, row_of = spliced(rows, times), np.repeat(np.arange(len(lengths)), lengths)
    assert len(found) == times * len(rows) and found.labels is None
    seconds = []
    for number, (start, end) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True)):
        row, first = found.tokens[start:end], number % len(rows)
        second = row_of[row[-1]]
        seconds.append(second)
        assert 1 <= len(row) <= max(lengths[first], lengths[second])
        assert row[-1] == offsets[second + 1] - 1, "the end is an end"
        turn = int((np.diff(row) != 1).argmax()) + 1 if (np.diff(row) != 1).any() else len(row)
        if lengths[first] > 2:
            assert row[0] == offsets[first], "the beginning is a beginning"
        assert {*row_of[row[:turn]]} <= {first, second} and {*row_of[row[turn:]]} <= {second}
    assert sorted(seconds) == sorted([*range(len(rows))] * times), "each ends as many"
    assert (found.types is not None) == paired
    if paired:
        np.testing.assert_array_equal(found.types, found.tokens % 2)


def test_splices_are_not_all_alike():
    rows = Blocks(np.arange(4_000, dtype=np.int32), np.arange(0, 4_001, 40))
    begun = [int((row // 40 == i % 100).sum()) for i, row in enumerate(spliced(rows, 3).tokens.reshape(300, 40))]
    assert len({*begun}) > 30 and np.mean(begun) == pytest.approx(20, abs=3)


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
        Training(row="x", task="topics", recipe=recipe, seed=seed, teaching=teachers and Teaching(seeds=teachers))
        for seed, teachers in ((0, None), (0, (0, 1)), (0, (0, 1, 2)), (1, (0, 1)))
    ]
    assert len({each.stages(flow).metrics.fingerprint for each in trainings}) == 4
    two, three, other = (each.stages(flow).stage_two.inputs["taught"].recipe for each in trainings[1:])
    assert two["inputs"].items() < three["inputs"].items(), "a third teacher asks nobody again"
    assert other == two, "students of all seeds learn the same"


@pytest.mark.usefixtures("alone")
def test_teachers_of_another_tokenizer_read_the_texts(data, tmp_path):
    flow, root = small_flow(data, tmp_path), str(tmp_path)
    more = {"splices": 1, "replacements": 1, "longer": 1}
    teaching = Teaching(recipe=small_recipe(vocabulary=120), seeds=(0, 1), **more)
    student = Training(row="student", task="topics", recipe=small_recipe(), teaching=teaching)
    stages = student.stages(flow)
    make([stages.metrics], root)
    soft = stages.stage_two.inputs["taught"]
    rows, blocks = read_blocks(f"{soft.folder(root)}/train.arrow"), stages.blocks.folder(root)
    own = read_blocks(f"{blocks}/train.arrow")
    assert len(rows) == 3 * len(own) and soft.record(root)["facts"]["teachers"] == 2
    same = rows.tokens[rows.offsets[2 * len(own)] :] == own.tokens[: own.offsets[-1]]
    assert 0.4 < same.mean() < 1, "some words are replaced, in rows of equal lengths"

    texts = load_task(stages.task.folder(root)).train_texts
    tokens = AutoTokenizer.from_pretrained(f"{blocks}/tokenizer")
    some = {0: texts[0], len(own) - 1: texts[-1]}
    some |= {
        row: tokens.decode(rows.tokens[slice(*rows.offsets[row : row + 2])], skip_special_tokens=True)
        for row in (len(own), 2 * len(own))
    }
    for row, text in some.items():
        said = []
        for teacher in teachers_of(soft):
            folder = f"{teacher.folder(root)}/model"
            read = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", truncation=True)
            with torch.inference_mode():
                said.append(
                    AutoModelForSequenceClassification.from_pretrained(folder).eval()(**read).logits[0].softmax(-1)
                )
        np.testing.assert_allclose(rows.labels[row], np.mean(said, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, Teaching.by_others(models=("models",))),
        ({"student": True}, Teaching(models=("models",), seeds=(0, 1))),
        ({"start": "encoder"}, Teaching(models=("models",))),
    ],
)
def test_a_student_of_other_models_from_scratch_learns_from_replaced_words(data, tmp_path, monkeypatch, more, expected):
    monkeypatch.setattr(teaching, "check_teachers", lambda *_: None)
    train = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "train.py"))
    task = OneTask(tasks=["topics"], task_root=str(data / "tasks"))
    (student,) = train["taught"](
        train["Train"](data=task, teachers=["models"], **more), small_flow(data, tmp_path), small_recipe()
    )
    assert student.teaching == expected and (expected.replacements, expected.longer) in ((3, 4), (0, 2))


def test_the_encoder_of_a_teachers_recipe_is_tried_first_too():
    teacher = small_recipe(vocabulary=120)
    assert Training(row="x", task="t", recipe=small_recipe()).recipes == [small_recipe()]
    taught = Training(row="x", task="t", recipe=small_recipe(), teaching=Teaching(recipe=teacher, seeds=(0,)))
    assert taught.recipes == [small_recipe(), teacher]


def test_what_cannot_teach_is_refused(data, tmp_path):
    with pytest.raises(
        ValueError, match="teaching: has no teacher; give seeds, of a recipe or the student's own, or models"
    ):
        Teaching()
    with pytest.raises(ValueError, match="teaching: has no teacher"):
        Teaching(recipe=small_recipe(), models=("x",))
    with pytest.raises(ValueError, match=r"teaching: models \['x'\]: must be a tuple"):
        Teaching(models=["x"])
    with pytest.raises(ValueError, match="teachers 'absent': there is no such folder"):
        teaching.check_teachers(["absent"], ("a", "b"))
    with pytest.raises(ValueError, match="teachers 'x': has the labels a, b, the task a, c; give a model of this task"):
        teaching.in_order("x", ("a", "b"), ("a", "c"))
    with pytest.raises(ValueError, match="teaching: splices -1: must be 0 or more"):
        Teaching(seeds=(0,), splices=-1)
    recipe = small_recipe(stage_one=None, start=Pretrained("x"), tokenizer="x", k=0)
    taught_alone = Training(row="x", task="topics", recipe=recipe, teaching=Teaching(seeds=(0,), replacements=1))
    with pytest.raises(ValueError, match="teaching: replacements need a stage one that exports an Mlm"):
        taught_alone.stages(small_flow(data, tmp_path))
    short = SimpleNamespace(encoder=BertModel(BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=1,
                                                         num_hidden_layers=0, max_position_embeddings=64)))  # fmt: skip
    teaching._check_length("x", short, 64)
    with pytest.raises(ValueError, match="teachers 'x': reads rows of 64 tokens at most, the student's have up to 65"):
        teaching._check_length("x", short, 65)


@pytest.mark.usefixtures("alone")
def test_labels_of_teachers_are_matched_by_name(data, tmp_path):
    flow, root = small_flow(data, tmp_path), str(tmp_path)
    own = flow.stages(small_recipe(), "topics", 0)
    make([own.metrics], root)
    first, second = f"{own.stage_two.folder(root)}/model", tmp_path / "turned"
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("SHA256SUMS"))
    config = json.loads((second / "config.json").read_text())
    turned = dict(zip("012", ("sea", "sky", "kitchen"), strict=True))
    assert list(config["id2label"].values()) == ["kitchen", "sea", "sky"]
    config |= {"id2label": turned, "label2id": {name: int(number) for number, name in turned.items()}}
    (second / "config.json").write_text(json.dumps(config))
    blocks, rows, found = own.blocks.folder(root), f"{root}/rows", []
    assert write_rows(rows, blocks, splices=0, device="cpu", threads=1) == {"rows": 60}
    for number, model in enumerate((first, str(second))):
        folder = f"{root}/labels_{number}"
        labelled = map(Teacher(model, blocks, rows, "", (), "fp32", "cpu"), chunks_of(60)[:: 1 - 2 * number])
        facts = write_teacher_labels(folder, blocks, labelled)
        assert facts.pop("worker_seconds") >= 0
        assert write_soft_labels(f"{root}/soft", blocks, rows, [folder]) == {"teachers": 1} | facts
        found.append(read_blocks(f"{root}/soft/train.arrow").labels)
    np.testing.assert_array_equal(found[0], found[1][:, [1, 2, 0]])  # what was called kitchen is called sea


def table_of(data, root, **options):
    return MAIN_TABLE(
        data=Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")]),
        changes=Changes(scale="tiny"),
        place=Place(root=str(root)),
        seeds=2,
        **options,
    )


def test_the_ensembles_of_a_table_include_those_of_its_students(data, tmp_path):
    flow, ours = small_flow(data, tmp_path), ["TLM, BM25 text"]
    alone, taught = (table_of(data, tmp_path, student_of=of) for of in ([], ["TLM, random text"]))
    assert alone.rows_with_ensembles(alone.trainings(flow)) == ours
    assert taught.rows_with_ensembles(taught.trainings(flow)) == [*ours, "TLM, random text, student of 2"]


@pytest.mark.parametrize(
    ("rows", "against"), [([], "TLM, BM25 text"), (["TF-IDF + linear model"], "TLM, BM25 text, student of 2")]
)
def test_a_table_compares_its_students_only_without_other_trainings(data, tmp_path, rows, against):
    table = table_of(data, tmp_path, student_of=["TLM, BM25 text"], rows=rows)
    assert table.view(table.trainings(small_flow(data, tmp_path))).against == against


STUDENTS = "TLM, BM25 text, student of 2"
WITH_LINEAR = f"{STUDENTS}, mean of 2 seeds with linear model"


@pytest.mark.parametrize("against", ["TF-IDF + linear model", STUDENTS, f"{STUDENTS}, mean of 2 seeds", WITH_LINEAR])
def test_any_row_can_be_compared_with_all_others(data, tmp_path, against):
    table = table_of(data, tmp_path, student_of=["TLM, BM25 text"], against=against)
    assert table.view(table.trainings(small_flow(data, tmp_path))).against == against


@pytest.mark.parametrize("against", ["absent", f"{STUDENTS}, mean of 3 seeds", "task data only with linear model"])
def test_a_row_to_compare_that_is_not_there_is_refused_before_any_work(data, tmp_path, against):
    table = table_of(data, tmp_path, student_of=["TLM, BM25 text"], against=against)
    with pytest.raises(ValueError, match=f"--against '{against}': allowed are .*'{WITH_LINEAR}'"):
        present(table, connect=lambda: pytest.fail("connected to Ray"))


def test_an_ensemble_of_a_row_that_is_left_out_cannot_be_compared(data, tmp_path):
    table = table_of(data, tmp_path, rows=["TLM, random text", TfIdf.name], against="TLM, BM25 text with linear model")
    with pytest.raises(ValueError, match=f"linear model': allowed are '{re.escape(TfIdf.name)}', 'TLM, random text'$"):
        present(table, connect=lambda: pytest.fail("connected to Ray"))


def test_students_of_a_row_with_another_recipe_learn_from_replaced_words(data, tmp_path):
    rows, flow = ["TLM, BM25 text", "TLM, random text"], small_flow(data, tmp_path)
    table = table_of(data, tmp_path, student_of=rows)
    own, others = ([one for one in table.trainings(flow) if one.row == f"{row}, student of 2"] for row in rows)
    assert [one.seed for one in own] == [one.seed for one in others] == [0, 1]
    assert {one.recipe for one in (*own, *others)} == {table.recipe("topics", flow, table.mixture)}
    assert {one.teaching for one in own} == {Teaching(seeds=(0, 1))}
    taught_by_three = table_of(data, tmp_path, student_of=rows[:1], teacher_seeds=3).trainings(flow)[-2:]
    assert {one.row for one in taught_by_three} == {"TLM, BM25 text, student of 3"}
    assert {one.teaching for one in taught_by_three} == {Teaching(seeds=(0, 1, 2))}
    random = table.recipes("topics", flow)["TLM, random text"]
    assert {one.teaching for one in others} == {Teaching.by_others(seeds=(0, 1), recipe=random)}
    with pytest.raises(ValueError, match="'absent': allowed are the table's rows 'task data only', 'TLM, random text'"):
        table_of(data, tmp_path, student_of=["absent"]).trainings(flow)


@pytest.mark.usefixtures("alone")
def test_the_time_of_a_student_includes_its_teachers_once(data, tmp_path):
    flow, recipe = small_flow(data, tmp_path), small_recipe()
    student = Training(row="x", task="topics", recipe=recipe, teaching=Teaching(seeds=(0, 1)))
    stages, records = student.stages(flow), Records(flow.execution.root)
    first, second = (flow.stages(recipe, "topics", seed) for seed in (0, 1))
    make([stages.metrics, first.metrics], flow.execution.root)
    soft = stages.stage_two.inputs["taught"]
    labelled, made = [soft.inputs["teacher_0"], soft.inputs["teacher_1"]], [soft.inputs["rows"], soft]
    trained = [first.stage_two, second.stage_one, second.stage_two]  # stage one of seed 0 is the student's own
    own = [*(records.of(each)["seconds"] for each in made), *(records.facts(each)["seconds"] for each in trained)]
    taught = sum(own) + sum(records.facts(each)["worker_seconds"] for each in labelled)
    found = facts_of(student, stages, records)
    assert found["seconds_taught"] == pytest.approx(taught) and min(found["seconds_taught"], found["seconds"]) > 0
    assert facts_of(replace(student, teaching=None), first, records)["seconds_taught"] == 0
