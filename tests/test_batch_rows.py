"""The table of rows per step: equally many rows in more steps, from its command to its result."""

import json

import pytest
from test_options import kinds, parsed  # noqa: F401 - fixtures

from tlm_ray.runs.recipes.cpu import TINY_RECIPE


@pytest.fixture
def rows(parsed, tmp_path):  # noqa: F811
    def read(*words):
        table = parsed("batch_rows", "--root", str(tmp_path), *words)
        return table.recipes("docstrings", table.flow())

    return read


def test_all_rows_see_as_much_text(rows):
    found = rows("--sizes", "16", "8", "64")
    stages = [(one.stage_one, one.stage_two) for one in found.values()]
    assert list(found) == ["recipe", *(f"{number} rows per step" for number in (16, 8, 64))]
    assert stages[0] == (TINY_RECIPE.stage_one, TINY_RECIPE.stage_two)
    assert [
        [(each.batch_rows, each.steps, each.warmup_steps, each.evaluate_every) for each in own] for own in stages
    ] == [
        [(32, 300, 30, 100), (32, 100, 10, 25)],
        [(16, 600, 60, 200), (16, 200, 20, 50)],
        [(8, 1200, 120, 400), (8, 400, 40, 100)],
        [(64, 150, 15, 50), (64, 50, 5, 12)],
    ]
    assert {each.learning_rate for own in stages for each in own} == {1e-3}


@pytest.mark.parametrize("wrong", [["0"], ["16", "16"]])
def test_numbers_are_whole_and_each_is_given_once(rows, capsys, wrong):
    with pytest.raises(SystemExit):
        rows("--sizes", *wrong)
    said = " ".join(capsys.readouterr().err.split())
    assert f"--sizes {' '.join(wrong)}: give whole numbers from 1 on, each once" in said


def test_a_script_takes_other_rows_per_step_before_other_steps(parsed, tmp_path):  # noqa: F811
    table, plain = (parsed("main_table", *words, "--root", str(tmp_path)) for words in (["--batch-rows", "16"], []))
    short = parsed("main_table", "--batch-rows", "16", "--steps-two", "70", "--root", str(tmp_path))
    ours = [one.recipes("docstrings", one.flow())["TLM, BM25 text"] for one in (table, short)]
    assert [(one.stage_one.steps, one.stage_two.steps, one.stage_two.batch_rows) for one in ours] == [
        (600, 200, 16),
        (600, 70, 16),
    ]
    first, other = (one.fine_tuned("x", "tlm", "docstrings", one.flow(), one.mixture) for one in (table, plain))
    assert first.stage_one == other.stage_one and first.stage_one.batch_rows == 32, "an encoder keeps its own"


def test_no_row_is_the_recipe_itself_or_less_than_a_step(rows):
    assert list(rows()) == ["recipe", "16 rows per step", "8 rows per step"]
    assert list(rows("--scale", "midi")) == ["recipe", "8 rows per step", "4 rows per step"]
    with pytest.raises(ValueError, match="--sizes 16: is the recipe's own number of rows per step; leave it out"):
        rows("--scale", "midi", "--sizes", "16")
    with pytest.raises(ValueError, match="batch_rows 9601: is more than all rows of a stage, 300 steps of 32 rows"):
        rows("--sizes", "9601")


@pytest.mark.slow
def test_the_command_trains_equally_many_rows(data, tmp_path, called):
    places = ["--tasks", "topics", "--task-root", str(data / "tasks"), "--corpus", str(data / "corpus")]
    small = ["--steps", "8", "--steps-two", "4", "--k", "5", "--seeds", "1", "--precision", "fp32"]
    called("experiments/batch_rows.py", *places, *small, "--sizes", "16", "--root", "tlm", "--out", "out")
    cells = json.loads((tmp_path / "out" / "batch_rows.json").read_text())["cells"]
    assert {"recipe", "16 rows per step"} <= {cell["row"] for cell in cells}
    facts = [json.loads(file.read_text())["facts"] for file in (tmp_path / "tlm" / "stage_one").glob("*/record.json")]
    assert sorted(one["steps"] for one in facts) == [8, 16] and facts[0]["passes"] == facts[1]["passes"]
