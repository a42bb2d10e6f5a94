"""Two published tables side by side: paired differences, rows that only one has, settings that differ."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from page_reading import Page
from report_cells import make_cells, make_trials, of
from test_examining import TASK

from tlm_ray import report
from tlm_ray.corpus.labelled.tasks import write_task
from tlm_ray.evaluation.predictions import write_predictions
from tlm_ray.report.page.compare import compare_page
from tlm_ray.report.published import read_published, rows_beside
from tlm_ray.report.story import Scored, Settings, Story

SCRIPT = Path(__file__).parents[1] / "experiments" / "compare.py"
ROWS = 200
GOLD = np.arange(ROWS) % 2


def published(folder, name, right, *, rows=("a", "b"), k=5, gold=GOLD, is_drawn=False):
    """Publish a table of one run per row, deterministic unless `is_drawn`, which is right on some rows of the task."""
    scored, cells = [], make_cells(["t"], rows=rows, seeds=1)
    for row in rows:
        place = folder / name / row
        write_predictions(str(place), "test", gold, np.eye(2)[np.where(right, gold, 1 - gold)])
        scored.append(Scored(row=row, task="t", folders=[str(place)], texts=str(folder / "task"), is_drawn=is_drawn))
    values = {"k": k, "scale": "tiny", "seconds": k / 7}
    settings = [Settings(row=row, task="t", kind="Recipe", values=values) for row in rows]
    score = 100.0 * right.mean()
    cells = [report.Cell(**(vars(c) | {"metric": "accuracy", "scores": (score,), "dev_scores": ()})) for c in cells]
    return report.publish(name, of(cells), str(folder / "out"), Story(settings=settings, scored=scored))[f"{name}.json"]


NAME = "compare_one_and_two.html"  # of its tables


@pytest.fixture
def tables(tmp_path):
    texts = [f"text {row}" for row in range(ROWS)]
    test = pa.table({"text": texts, "text_pair": [""] * ROWS, "label": GOLD})
    task = replace(TASK, splits=TASK.splits | {"test": test})
    write_task(str(tmp_path / "task"), task)
    draw = np.random.default_rng(0)
    first, second = draw.random(ROWS) < 0.6, draw.random(ROWS) < 0.9
    locations = (
        published(tmp_path, "one", first, rows=("a", "b", "old")),
        published(tmp_path, "two", second, k=9, rows=("a", "b", "new")),
    )
    return locations, first, second


def test_the_command_writes_a_page_of_paired_differences(tables, tmp_path, monkeypatch, capsys):
    locations, first, second = tables
    monkeypatch.setattr(sys, "argv", ["compare.py", *locations, "--out", str(tmp_path / "results")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    page = Page((tmp_path / "results" / NAME).read_text())
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Of 2 rows that both tables have predictions of, 2 are shown to differ."
    assert said[:3] == page.text("p")[1:4] and said[-1] == f"All rows and settings: {tmp_path}/results/{NAME}"
    lead = 100 * (second.mean() - first.mean())
    assert said[1].startswith(f"a on t: the second table is {lead:.1f} points above the first (95 % interval +")
    (rows,), (settings,) = page.tables["table"], page.tables["settings"]
    scores = [f"{100 * right.mean():.2f}" for right in (first, second)]
    assert [[row[0], *row[2:]] for row in rows[1:]] == [[row, *scores, "t", "accuracy"] for row in "ab"]
    assert settings[1:] == [["k", "5", "9", "a on t; b on t"]]
    assert [text for text in page.text("li") if " on t" in text] == ["old on t", "new on t"]


def test_the_page_is_named_without_the_query_of_a_location():
    names = runpy.run_path(str(SCRIPT))["page_name"]
    assert names("s3://b/k.json?endpoint_override=http://host:9000", "out/rho2.json") == "compare_k_and_rho2.html"


def test_the_difference_is_that_of_pairs_of_rows(tables):
    locations, first, second = tables
    found = rows_beside(*map(read_published, locations))[0].difference
    each = 100.0 * (second.astype(float) - first)
    assert found is not None and found.mean == pytest.approx(each.mean())
    assert found.error == pytest.approx(each.std(ddof=1) / ROWS**0.5)
    assert found.holm == pytest.approx(min(1.0, 2 * found.p)), "of two rows"


def test_tables_of_one_training_are_not_tested(tables, tmp_path):
    _, first, second = tables
    made = [published(tmp_path, n, right, is_drawn=True) for n, right in (("once", first), ("again", second))]
    page = Page(compare_page(*map(read_published, made)))
    said = page.text("p")
    assert said[1] == "Of 2 rows that both tables have predictions of, 0 are shown to differ."
    assert said[2] == "Of these rows, 2 are not tested: too few trainings; give --seeds 3."
    assert not any("and seeds" in each for each in said) and any("it omits the spread over seeds" in e for e in said)
    assert all("not tested" in row[1] for row in page.tables["table"][0][1:])


def test_without_predictions_or_with_other_rows_there_is_no_interval(tables, tmp_path):
    (one, _), first, _ = tables
    found = rows_beside(read_published(one), read_published(one))
    assert [(each.difference, each.why) for each in found] == [(None, "the same trainings")] * 3
    other = published(tmp_path, "other", first, gold=1 - GOLD)
    assert {each.why for each in rows_beside(read_published(one), read_published(other))} == {"other rows of the task"}
    (tmp_path / "other" / "a" / "test_predictions.arrow").unlink()
    lost = rows_beside(read_published(one), read_published(other))[0]
    assert lost.why == f"no predictions or texts at {tmp_path}/other/a"
    bare = report.publish("bare", of(make_cells(["t"], rows=["a"])), str(tmp_path / "out"))["bare.json"]
    page = Page(compare_page(read_published(one), read_published(bare)))
    assert page.tables["table"][0][1][1].endswith("other metric or split")


def test_trainings_that_both_tables_have_are_not_compared_with_themselves(tables, tmp_path):
    (one, two), _, _ = tables
    first, second = (json.loads(Path(each).read_text()) for each in (one, two))
    own, other = (each["predictions"][0]["folders"][0] for each in (first, second))
    first["predictions"][0]["folders"], second["predictions"][0]["folders"] = [own, other], [other, own]
    whys = []
    for folders in ([other, own], [other]):
        second["predictions"][0]["folders"] = folders
        for name, document in (("one", first), ("two", second)):
            (tmp_path / f"{name}.json").write_text(json.dumps(document))
        found = rows_beside(*(read_published(str(tmp_path / f"{name}.json")) for name in ("one", "two")))
        whys.append(found[0].why)
    assert whys == ["the same trainings", "some trainings are in both"]


def test_a_task_that_is_gone_is_named(tables, tmp_path):
    (one, two), _, _ = tables
    (tmp_path / "task" / "test.arrow").unlink()
    assert rows_beside(read_published(one), read_published(two))[0].why == f"no predictions or texts at {tmp_path}/task"


def test_what_is_no_table_is_refused(tmp_path):
    sweep = report.publish_sweep("s", make_trials(), str(tmp_path), parameters=["k"])["s.json"]
    with pytest.raises(ValueError, match=r"has a sweep's trials; give the NAME\.json of a table"):
        read_published(sweep)
    (tmp_path / "x.json").write_text('{"cells": [{"task": "t"}]}')
    with pytest.raises(ValueError, match="lacks 'row' of a table"):
        read_published(str(tmp_path / "x.json"))
    (tmp_path / "y.json").write_text('{"cells": [{"row": "a", "task": "t"}]}')
    with pytest.raises(ValueError, match="lacks 'metric' of a table"):
        read_published(str(tmp_path / "y.json"))
    with pytest.raises(FileNotFoundError):
        read_published(str(tmp_path / "nowhere.json"))
