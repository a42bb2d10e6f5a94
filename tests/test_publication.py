"""Files of results: named after the experiment, whole, and replaced by nothing but themselves."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from report_cells import PARAMETERS, make_cells, make_trials, of, pixels

from tlm_ray import report, storage
from tlm_ray.plain import TfIdf
from tlm_ray.runs.naming import kept_key
from tlm_ray.runs.recipes.cpu import TINY_RECIPE


def test_publish_writes_what_it_names(tmp_path):
    cells = make_cells(["sciie", "docstrings"])
    uris = report.publish("main_table", of(cells, notes=["a note"]), str(tmp_path / "results"))
    assert sorted(uris) == [f"main_table.{kind}" for kind in ("csv", "html", "json", "md", "png", "tex")]
    assert storage.read_bytes(uris["main_table.md"]).decode() == report.table_markdown(of(cells, notes=["a note"]))
    assert storage.read_bytes(uris["main_table.csv"]).decode() == report.table_csv(of(cells))
    assert len(json.loads(storage.read_bytes(uris["main_table.json"]))["cells"]) == len(cells)
    assert storage.read_bytes(uris["main_table.tex"]).decode() == report.table_latex(of(cells, notes=["a note"]))
    assert "<li>a note</li>" in storage.read_bytes(uris["main_table.html"]).decode()
    assert pixels(storage.read_bytes(uris["main_table.png"])).std() > 0


def test_publish_sweep_writes_the_best_trial_first(tmp_path):
    failed = {"k": np.int64(7), "rho1": 1, "rho2": 1, "method": "bm25", "dev": math.nan, "seed": 3}
    trials = [failed, *make_trials()]
    uris = report.publish_sweep("sweep", trials, f"file://{tmp_path}/sweep", parameters=PARAMETERS)
    assert sorted(uris) == [f"sweep.{kind}" for kind in ("csv", "html", "json", "md", "png")]
    written = json.loads(storage.read_bytes(uris["sweep.json"]))["trials"]
    scores = [trial["dev"] for trial in written]
    assert scores[:-1] == sorted((trial["dev"] for trial in trials[1:]), reverse=True)
    assert written[-1] == failed | {"k": 7, "dev": None}
    assert all(
        f"best of {len(make_trials())} trials on dev; its dev score is optimistic" in storage.read_bytes(uri).decode()
        for uri in (uris["sweep.html"], uris["sweep.md"])
    )
    assert f"{max(scores[:-1]):.2f}" in storage.read_bytes(uris["sweep.html"]).decode()
    assert pixels(storage.read_bytes(uris["sweep.png"])).std() > 0


def test_a_sweep_without_a_score_is_still_published(tmp_path):
    trials = [trial | {"dev": None} for trial in make_trials()]
    uris = report.publish_sweep("sweep", trials, str(tmp_path), parameters=PARAMETERS)
    assert "failed" in storage.read_bytes(uris["sweep.md"]).decode()
    assert "best of" not in storage.read_bytes(uris["sweep.md"]).decode()
    with pytest.raises(ValueError, match="trial 0 lacks dev"):
        report.publish_sweep(
            "sweep", [{"k": 1, "rho1": 1, "rho2": 1, "method": "bm25"}], str(tmp_path), parameters=PARAMETERS
        )


def test_another_experiments_table_leaves_the_first_as_it_is(tmp_path):
    first = report.publish("main_table", of(make_cells(["sciie"])), str(tmp_path))
    before = {uri: storage.read_bytes(uri) for uri in first.values()}
    other = report.publish("my_table", of(make_cells(["docstrings"])), str(tmp_path))
    assert sorted(other) == [f"my_table.{kind}" for kind in ("csv", "html", "json", "md", "png", "tex")]
    assert {uri: storage.read_bytes(uri) for uri in first.values()} == before
    report.publish_sweep("sweep_sciie", make_trials(), str(tmp_path), parameters=PARAMETERS)
    report.publish_sweep("sweep_ag", make_trials()[:3], str(tmp_path), parameters=PARAMETERS)
    assert len(json.loads((tmp_path / "sweep_sciie.json").read_text())["trials"]) == len(make_trials())


def test_two_tables_of_one_name_are_both_kept_and_the_short_name_has_the_newer(tmp_path):
    out, keys = str(tmp_path), ["sciie_tiny_ab12cd34", "ag_tiny_ef56ab78"]
    for key, task in zip(keys, ["sciie", "ag"], strict=True):
        report.publish("main_table", of(make_cells([task])), out, key=key)
        trials = [trial | {"task": task} for trial in make_trials()[:3]]
        report.publish_sweep("sweep", trials, out, parameters=PARAMETERS, key=key)
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    kinds = ("csv", "html", "json", "md", "png", "tex")
    assert {name for name in kept if name.startswith("main")} == {
        f"main_table_{key}.{k}" for key in keys for k in kinds
    }
    first, second = (storage.read_bytes(report.kept_at("main_table", out, key)).decode() for key in keys)
    assert "sciie" in first and "sciie" not in second
    assert (tmp_path / "main_table.html").read_text() == second
    first, second = (storage.read_bytes(report.kept_at("sweep", out, key)).decode() for key in keys)
    assert "sciie" in first and (tmp_path / "sweep.html").read_text() == second
    assert len(kept) == 2 * (6 + 5)


def test_a_kept_name_has_tasks_scale_and_fingerprint():
    recipes = [TINY_RECIPE, replace(TINY_RECIPE, k=9), TfIdf()]
    assert kept_key(["a/reviews.csv", "b/news"], recipes, "abcdef0123456789") == "reviews_news_tiny_abcdef01"
    assert kept_key([f"t{n}" for n in range(8)], recipes, "ab" * 8) == "8 tasks_tiny_abababab"
    report.check_name(kept_key(["odd: name?"], recipes, "ab" * 8))


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "x?y"])
def test_a_name_that_is_no_files_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="it names files"):
        report.publish(name, of(make_cells(["sciie"])), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
