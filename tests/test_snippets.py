"""The README's own experiment and own retrieval method are run as they stand there."""

import json
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from tracked import empty_store

from tlm_ray.plain import PLAIN
from tlm_ray.runs import experiment

README = (Path(__file__).parents[1] / "README.md").read_text()
SECTION = README.partition("## Your own experiment\n")[2].partition("\n## ")[0]
OWN, METHOD = re.findall(r"```python\n(.*?)```", SECTION, re.S)
MOST_LINES = 30


def test_the_snippets_are_short():
    for snippet in (OWN, METHOD):
        assert 10 < sum(bool(line.strip()) for line in snippet.splitlines()) <= MOST_LINES


@pytest.mark.usefixtures("alone")
def test_the_snippets_make_a_table(data, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: replace(execution, workers=1, side_by_side=1))
    monkeypatch.setattr(ray, "init", lambda **options: None)
    rows = "for size in self.entries}"
    more = 'for size in self.entries} | {"shared words": replace(recipe, method=SharedWords())}'
    assert rows in OWN
    docstring, rest = OWN.split("\n\n", 1)
    (tmp_path / "own.py").write_text(f"{docstring}\n\n{METHOD}\n\n{rest.replace(rows, more)}")
    places = {"--root": "root", "--out": "out"}
    words = [word for flag, name in places.items() for word in (flag, f"{tmp_path}/{name}")]
    words += ["--tasks", "topics", "--task-root", f"{data}/tasks", "--corpus", f"{data}/corpus", "--k", "3"]
    words += ["--steps", "2", "--steps-two", "2", "--seeds", "1", "--precision", "fp32", "--entries", "300", "500"]
    monkeypatch.setattr(sys, "argv", ["own.py", *words, "--tracking-uri", empty_store(tmp_path)])
    runpy.run_path(str(tmp_path / "own.py"), run_name="__main__")
    cells = json.loads((tmp_path / "out" / "vocabulary.json").read_text())["cells"]
    found = {cell["row"]: cell["x"] for cell in cells if cell["row"] not in [one.name for one in PLAIN]}
    assert found.keys() == {"300 entries", "500 entries", "shared words"}
    records = tmp_path.glob("root/neighbours/*/record.json")
    made = [json.loads(file.read_text())["recipe"]["parameters"] for file in records]
    assert sorted(each["method"] for each in made) == ["bm25", "shared words"]
