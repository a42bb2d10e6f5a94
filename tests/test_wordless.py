"""Training rows without a word, such as those of SST-2 as GLUE ships it: they retrieve nothing, and are counted."""

import importlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from small import read_selection, small_flow, small_recipe
from small_data import sentences
from tracked import empty_store

from tlm_ray import Changes, Data, Passages, Place, present
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.retrieval.methods import bm25, method_named
from tlm_ray.runs import experiment
from tlm_ray.runs.stages.making import make

pytestmark = pytest.mark.usefixtures("alone")
WORDLESS = ["(", "...", "-- '' ..."]


@pytest.fixture
def said(monkeypatch):
    """What the retrieval says."""
    stream = io.StringIO()
    monkeypatch.setattr(bm25, "console", Console(file=stream, width=400), raising=False)
    return stream


def write_sst2(folder, train):
    """Write SST-2 as GLUE's own archive has it: tables of sentence and label, whose test set has no labels."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    made = {split: [sentences(draw, ("sea", "sky")[i % 2], 2) for i in range(12)] for split in ("train", "dev")}
    for split, texts in (("train", made["train"] + train), ("dev", made["dev"])):
        rows = "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(texts))
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")


def test_sst2_of_glue_with_its_empty_rows_trains_to_a_table(data, tmp_path, said, monkeypatch):
    write_sst2(tmp_path / "tasks" / "sst2", WORDLESS + WORDLESS[:1])
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: replace(execution, workers=1, side_by_side=1))
    module = importlib.import_module("main_table")
    table = module.MainTable(
        data=Data(tasks=["sst2"], task_root=str(tmp_path / "tasks"), corpus=[str(data / "corpus")]),
        place=Place(root=f"{tmp_path}/root", out=f"{tmp_path}/out", tracking_uri=empty_store(tmp_path)),
        changes=Changes(steps=4, steps_two=4, precision="fp32"),
        passages=Passages(k=5),
        seeds=1,
    )
    results = present(table, connect=lambda: None)
    assert set(results.rows) >= {*module.ROWS, "TF-IDF + linear model", "BM25 neighbours"}
    assert results.metric("sst2") == "accuracy"
    texts = read_task("sst2", task_root=str(tmp_path / "tasks")).train_texts
    wordless = [text for text in texts if text in WORDLESS]
    first = texts.index(wordless[0])
    line = f"{len(wordless)} of {len(texts)} training texts have no word to search by, such as row {first + 1}: "
    assert len(wordless) >= 2 and said.getvalue().count(f"{line}{texts[first]!r}") == 1
    records = [json.loads(file.read_text()) for file in tmp_path.glob("root/neighbours/*/record.json")]
    assert [r["facts"]["without_query"] for r in records if r["recipe"]["parameters"]["method"] == "bm25"] == [
        len(wordless)
    ]


@pytest.mark.parametrize("method", ["bm25", "rake", "dsir", "random"])
def test_rows_without_a_word_retrieve_nothing_and_change_nothing_of_what_others_retrieve(data, tmp_path, method, said):
    found = []
    for name, train in (("without", []), ("with", WORDLESS)):
        write_sst2(tmp_path / name / "topics", train)
        flow = small_flow(data, tmp_path / f"root-{name}", shards=3)
        flow = replace(flow, task_root=str(tmp_path / name))
        stage = flow.stages(small_recipe(method=method_named(method)), "topics", 0).neighbours
        make([stage], flow.execution.root)
        found.append(read_selection(stage.folder(flow.execution.root)))
    assert found[0].equals(found[1]) and len(found[0])


def test_a_task_without_any_word_is_refused_before_anything_is_trained(data, tmp_path):
    folder = tmp_path / "tasks" / "topics"
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (folder / f"{split}.csv").write_text("text,label\n(,a\n...,b\n")
    flow = small_flow(data, tmp_path / "root")
    flow = replace(flow, task_root=str(tmp_path / "tasks"))
    with pytest.raises(ValueError, match=r"none of the 2 training texts has a word .* row 1: '\('; .* --k 0"):
        make([flow.stages(small_recipe(), "topics", 0).neighbours], flow.execution.root)
