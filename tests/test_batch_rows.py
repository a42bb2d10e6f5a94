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
    assert f"--sizes {' '.join(wrong)}: give one or more whole numbers from 1 on, each once" in said


def test_a_script_takes_other_rows_per_step_before_other_steps(parsed, tmp_path):  # noqa: F811
    table = parsed("main_table", "--batch-rows", "16", "--steps-two", "70", "--baseline", "x", "--root", str(tmp_path))
    own = table.recipes("docstrings", table.flow())
    ours, other = own["TLM, BM25 text"], parsed("main_table", "--baseline", "x", "--root", str(tmp_path))
    assert [(each.batch_rows, each.steps) for each in (ours.stage_one, ours.stage_two)] == [(16, 600), (16, 70)]
    rest = other.recipes("docstrings", other.flow())["x"].stage_two
    assert own["x"].stage_two == rest.of_steps(70), "a pretrained encoder keeps its rows"


@pytest.mark.slow
def test_the_command_trains_equally_many_rows(data, tmp_path, called):
    places = ["--tasks", "topics", "--task-root", str(data / "tasks"), "--corpus", str(data / "corpus")]
    small = ["--steps", "8", "--steps-two", "4", "--k", "5", "--seeds", "1", "--precision", "fp32"]
    called("experiments/batch_rows.py", *places, *small, "--sizes", "16", "--root", "tlm", "--out", "out")
    cells = json.loads((tmp_path / "out" / "batch_rows.json").read_text())["cells"]
    assert {"recipe", "16 rows per step"} <= {cell["row"] for cell in cells}
    facts = [json.loads(file.read_text())["facts"] for file in (tmp_path / "tlm" / "stage_one").glob("*/record.json")]
    assert sorted(one["steps"] for one in facts) == [8, 16] and facts[0]["passes"] == facts[1]["passes"]
