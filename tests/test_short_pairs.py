"""The table of pairs: students of two short fine-tunings, from its command to its result."""

import json
from statistics import fmean, stdev

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax
from sklearn.metrics import f1_score
from small import small_recipe
from test_adapted import saved
from test_options import kinds, parsed  # noqa: F401 - fixtures
from transformers import BertModel

from tlm_ray.evaluation.predictions import write_predictions
from tlm_ray.runs.groups import Group

STUDENT = "student of a pair"


@pytest.fixture
def table(parsed, tmp_path):  # noqa: F811
    return lambda *words: parsed("pairs", "--start", "x", "--root", str(tmp_path), *words)


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        (["fine-tuned", "fine-tuned, longer"], [100, 200, 50]),
        (["fine-tuned, longer"], [200, 50]),
        ([], [50]),
    ],
)
def test_rows_are_lengths_of_one_fine_tuning(table, rows, steps):
    found = table("--rows", *rows, "--steps-two", "100")
    recipes = found.recipes("docstrings", found.flow())
    assert list(recipes) == [*rows, "fine-tuned, half"]
    assert [(one.stage_two.steps, one.stage_two.warmup_steps) for one in recipes.values()] == [
        (own, own // 10) for own in steps
    ]
    assert len({one.stage_two.learning_rate for one in recipes.values()}) == 1


def test_a_single_step_has_no_half(table):
    made = table("--steps-two", "1")
    with pytest.raises(ValueError, match="--steps-two 1: has no half; give 2 or more"):
        made.recipes("docstrings", made.flow())


def test_students_share_no_teacher_and_all_teachers_are_rows(table):
    made = table("--seeds", "3", "--rows", "fine-tuned")
    trainings = [one for one in made.trainings(made.flow()) if one.row in ("fine-tuned", "fine-tuned, half", STUDENT)]
    seeds = {row: [one.seed for one in trainings if one.row == row] for row in {one.row for one in trainings}}
    assert seeds == {"fine-tuned": [0, 1, 2], "fine-tuned, half": [0, 1, 2, 3, 4, 5], STUDENT: [0, 1, 2]}
    students = [one for one in trainings if one.row == STUDENT]
    assert [one.teaching.seeds for one in students] == [(0, 1), (2, 3), (4, 5)]
    assert {one.recipe for one in students} == {one.recipe for one in trainings if one.row == "fine-tuned, half"}


def test_the_score_of_a_pair_is_that_of_its_mean_probabilities(kinds, tmp_path):  # noqa: F811
    from pairs import scores_of_pairs

    rng = np.random.default_rng(0)
    gold, logits = rng.integers(0, 3, 40), rng.normal(size=(4, 40, 3))
    logits[0] += 3 * np.eye(3)[gold]
    folders = [tmp_path / str(seed) for seed in range(4)]
    for folder, own in zip(folders, logits, strict=True):
        folder.mkdir()
        for split in ("dev", "test"):
            write_predictions(str(folder), split, gold, own)
    costs = dict.fromkeys(("flops", "flops_counted", "data_bytes", "seconds", "seconds_taught"), 0)
    group = Group(
        row="fine-tuned, half",
        task="topics",
        metric="macro_f1",
        facts=[costs | {"metric": "macro_f1", "dev": 0.0, "test": 0.0}] * 4,
        folders=list(map(str, folders)),
        task_folder="",
        recipe=small_recipe(),
    )
    odds = softmax(logits, axis=2)
    means = [(odds[0] + odds[1]).argmax(1), (odds[2] + odds[3]).argmax(1)]
    first, second = (100 * f1_score(gold, mean, average="macro") for mean in means)
    told = f"{fmean([first, second]):.2f} ± {stdev([first, second]):.2f}"
    assert scores_of_pairs(group) == f"topics: mean of each pair: dev {told}, test {told}" and first > second + 20


@pytest.mark.parametrize("words", [["--architecture", "bert"], ["--batch-rows", "16"]])
def test_options_of_trainings_from_scratch_are_refused(table, words, capsys):
    with pytest.raises(SystemExit):
        table(*words)
    assert words[0] in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_ends_with_a_student_per_pair(data, tmp_path, called):
    train = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()
    start = saved(tmp_path / "encoder", BertModel, train, positions=128)
    places = ["--tasks", "topics", "--task-root", str(data / "tasks"), "--root", "tlm", "--out", "out"]
    small = ["--start", start, "--steps-two", "8", "--seeds", "1", "--rows", "--precision", "fp32"]
    said = called("experiments/pairs.py", *places, *small, "--against", "fine-tuned, half")
    cells = {cell["row"]: cell for cell in json.loads((tmp_path / "out" / "pairs.json").read_text())["cells"]}
    assert len(cells["fine-tuned, half"]["scores"]) == 2 and len(cells[STUDENT]["scores"]) == 1
    assert "<h3>fine-tuned, half minus</h3>" in (tmp_path / "out" / "pairs.html").read_text()
    assert "topics: mean of each pair: dev" in " ".join(said.split())
    rows = [json.loads(file.read_text())["facts"] for file in (tmp_path / "tlm" / "student_rows").glob("*/record.json")]
    facts = [json.loads(file.read_text())["facts"] for file in (tmp_path / "tlm" / "stage_two").glob("*/record.json")]
    assert [one["rows"] for one in rows] == [4 * len(train)] and sorted(one["steps"] for one in facts) == [4, 4, 8]
