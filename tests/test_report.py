"""Scores, FLOPs, tables and figures, against scikit-learn, transformers, statistics and PIL."""

import ast
import csv
import io
import json
import math
import random
import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from sklearn.metrics import classification_report
from transformers import AutoModelForMaskedLM

import tlm_ray.report
from tlm_ray import report, storage
from tlm_ray.corpus import scores
from tlm_ray.corpus.tasks import ALIASES
from tlm_ray.report.drawing import COLOURS, marker_of
from tlm_ray.report.grids import size_text, time_text
from tlm_ray.report.paper import PRINTED_AVERAGES, TASKS
from tlm_ray.report.sweeps import sweep_csv, sweep_json, sweep_markdown
from tlm_ray.training.model import config_from
from tlm_ray.training.schedules import Geometry

ROWS = ("task data only", "TLM, random text", "TLM, BM25 text")


def make_cells(tasks, *, rows=ROWS, seeds=3, flops=1e15):
    draw = random.Random(7)
    micro = ("chemprot", "rct-20k")
    return [
        report.Cell(
            row=row,
            task=task,
            metric="micro_f1" if task in micro else "macro_f1",
            scores=tuple(30 + 6 * level + draw.random() for _ in range(seeds)),
            dev_scores=tuple(35 + 6 * level + draw.random() for _ in range(seeds)),
            flops=flops * (level + 1),
            flops_counted=1.1 * flops * (level + 1),
            data_bytes=45_000_000,
            wall_s=600.0,
        )
        for level, row in enumerate(rows)
        for task in tasks
    ]


def make_trials():
    draw = random.Random(7)
    return [
        {"k": k, "rho1": rho1, "rho2": 20, "method": method, "dev": draw.uniform(30, 50)}
        for method in ("bm25", "random")
        for k in (10, 100)
        for rho1 in (0, 3, 19)
    ]


# scores


def random_ids(classes, rows=200):
    draw = np.random.default_rng(classes)
    gold = draw.integers(classes, size=rows)
    return gold, np.where(draw.random(rows) < 0.6, gold, draw.integers(classes, size=rows))


@pytest.mark.parametrize("classes", [2, 3, 13])
def test_f1_and_accuracy_are_those_of_scikit_learns_report(classes):
    gold, predicted = random_ids(classes)
    expected = classification_report(gold, predicted, output_dict=True)
    assert scores.score("macro_f1", gold, predicted) == pytest.approx(100 * expected["macro avg"]["f1-score"])
    for metric in ("accuracy", "micro_f1"):
        assert scores.score(metric, gold, predicted) == pytest.approx(100 * expected["accuracy"])


def test_glue_scores_follow_their_definitions():
    gold, predicted = random_ids(2)
    expected = classification_report(gold, predicted, output_dict=True)
    both = (expected["accuracy"] + expected["1"]["f1-score"]) / 2
    assert scores.score("accuracy_f1", gold, predicted) == pytest.approx(100 * both)
    # With two classes, Matthews' coefficient is Pearson's.
    pearson = np.corrcoef(gold, predicted)[0, 1]
    assert scores.score("matthews", gold, predicted) == pytest.approx(100 * pearson)


@pytest.mark.parametrize("metric", sorted(scores.METRICS))
def test_perfect_and_degenerate_predictions_have_a_score(metric):
    assert scores.score(metric, [0, 1, 1], [0, 1, 1]) == 100.0
    assert 0.0 <= scores.score(metric, [1, 1], [1, 1]) <= 100.0
    assert scores.score(metric, [0, 1, 1, 0], [1, 0, 0, 1]) <= 0.0


def test_macro_f1_counts_a_class_that_was_only_predicted():
    assert scores.score("macro_f1", [0, 0, 0, 0], [0, 0, 0, 1]) == pytest.approx(100 * (6 / 7) / 2)


@pytest.mark.parametrize(
    ("metric", "gold", "predicted", "message"),
    [
        ("f1", [0], [0], "'f1'.*macro_f1.*accuracy_f1"),
        ("accuracy", [0, 1], [0], "'accuracy'.*2 gold and 1 predicted"),
        ("accuracy", [], [], "'accuracy'.*non-empty"),
        ("macro_f1", [0, 1], [0.2, 0.9], "'macro_f1'.*predicted.*integer"),
        ("accuracy_f1", [0, 2], [0, 1], r"'accuracy_f1'.*\[0, 1, 2\].*0 and 1 only"),
    ],
)
def test_score_names_the_metric_and_what_is_allowed(metric, gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        scores.score(metric, gold, predicted)


# FLOPs


@pytest.mark.parametrize(
    ("layers", "width", "intermediate", "vocabulary", "positions", "known"),
    [
        (12, 768, 3072, 30_522, 512, 109_514_298),
        (24, 1024, 4096, 30_522, 512, 335_174_458),
        (3, 48, 100, 211, 33, None),
    ],
)
def test_encoder_parameters_are_those_of_transformers(layers, width, intermediate, vocabulary, positions, known):
    size = {"layers": layers, "width": width, "intermediate": intermediate, "positions": positions}
    for family in ("bert", "modernbert"):
        config = config_from(
            Geometry(heads=4, family=family, **size), vocabulary=vocabulary, pad_id=0, labels=("a", "b")
        )
        with torch.device("meta"):
            expected = AutoModelForMaskedLM.from_config(config).num_parameters()
        assert family == "modernbert" or known in (None, expected)
        assert report.encoder_parameters(**size, vocabulary=vocabulary, family=family) == expected


def test_training_flops_reproduce_the_paper():
    # BERT: 900,000 steps of 256 x 128 tokens, then 100,000 of 256 x 512 (Table 2 prints 2.79E19).
    phases = ((900_000, 128), (100_000, 512))
    flops = sum(
        report.training_flops(steps=steps, batch_rows=256, block_tokens=tokens, parameters=109_000_000)
        for steps, tokens in phases
    )
    assert report.human(flops) == "2.79E19"
    with pytest.raises(ValueError, match="steps is -1"):
        report.training_flops(steps=-1, batch_rows=1, block_tokens=1, parameters=1)


@pytest.mark.parametrize("flops", [0, 1, 999.9, 2.74e18, 1.5361e21, 9.999e9])
def test_human_reads_back_to_three_digits(flops):
    text = report.human(flops)
    assert float(text) == pytest.approx(flops, rel=0.005)
    assert "+" not in text


def test_sizes_and_times_read_as_people_write_them():
    assert [size_text(n) for n in (0, 999, 999_999, 1.21e9, 16e9, 2e15)] == [
        *("0 B", "999 B", "1 MB", "1.21 GB", "16 GB", "2 PB"),
    ]
    assert [time_text(s) for s in (2.5, 90, 5400, 172_800)] == [
        "2.5 s",
        "1.5 min",
        "1.5 h",
        "2.0 d",
    ]


# the paper's table


@pytest.mark.parametrize("row", PRINTED_AVERAGES)
def test_the_papers_averages_recompute(row):
    means = [found.mean for task in TASKS for found in report.reported(task) if found.row == row]
    assert len(means) == 8
    printed = pytest.approx(PRINTED_AVERAGES[row], abs=0.005 + 1e-9)
    if row == "TLM large":  # the README's AGNews gives the printed average, Table 2's does not
        assert statistics.fmean(means) != printed
        means[0] = 94.36
    assert statistics.fmean(means) == printed


def test_reported_knows_aliases_and_refuses_to_guess():
    assert report.reported("SciERC") == report.reported("sciie") != []
    assert set(ALIASES.values()) <= set(TASKS)
    assert all(report.reported(alias) == report.reported(name) != [] for alias, name in ALIASES.items())
    assert report.reported("docstrings") == []
    assert {found.metric for found in report.reported("rct-20k")} == {"micro_f1"}


# tables


def test_cell_statistics_are_those_of_the_standard_library():
    cell = make_cells(["sciie"])[0]
    assert cell.mean == statistics.fmean(cell.scores)
    assert cell.std == statistics.stdev(cell.scores)
    assert make_cells(["sciie"], seeds=1)[0].std == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": (101.0,)}, "score 101"),
        ({"scores": (math.nan,)}, "score nan"),
        ({"scores": (), "dev_scores": ()}, "at least one"),
        ({"dev_scores": (1.0, 2.0)}, "1 scores and 2 dev_scores"),
        ({"flops": math.inf}, "flops is inf"),
    ],
)
def test_a_cell_refuses_what_cannot_be_printed(change, message):
    fields = {"row": "r", "task": "t", "metric": "accuracy", "scores": (1.0,), "dev_scores": (1.0,)}
    costs = {"flops": 1.0, "data_bytes": 1, "wall_s": 1.0}
    with pytest.raises(ValueError, match=f"'r' on 't'.*{message}"):
        report.Cell(**(fields | costs | change))


def test_cells_that_make_no_table_are_refused():
    cells = make_cells(["sciie"])
    with pytest.raises(ValueError, match="occurs twice"):
        report.table_markdown([*cells, cells[0]])
    mixed = report.Cell(**(vars(cells[0]) | {"row": "other", "metric": "accuracy"}))
    with pytest.raises(ValueError, match=r"'accuracy'.*'macro_f1'"):
        report.table_csv([*cells, mixed])
    with pytest.raises(ValueError, match="at least one cell"):
        report.table_json([])


def test_csv_reads_back_to_the_cells():
    cells = make_cells(["sciie", "docstrings"])
    lines = list(csv.DictReader(io.StringIO(report.table_csv(cells))))
    assert [(line["row"], line["task"]) for line in lines] == [(c.row, c.task) for c in cells]
    for line, cell in zip(lines, cells, strict=True):
        assert tuple(map(float, line["scores"].split())) == cell.scores
        assert float(line["mean"]) == cell.mean
        assert float(line["std"]) == cell.std
        assert int(line["data_bytes"]) == cell.data_bytes
        assert float(line["flops_counted"]) == cell.flops_counted != float(line["flops"])
    assert not [name for name in lines[0] if "dev" in name]  # test and dev never in one table


def test_json_reads_back_to_the_cells_and_holds_the_reported_rows():
    cells = make_cells(["sciie", "docstrings"])
    document = json.loads(report.table_json(cells))
    for record, cell in zip(document["cells"], cells, strict=True):
        assert record["scores"] == list(cell.scores)
        assert record["dev_scores"] == list(cell.dev_scores)
        assert {key: record[key] for key in ("row", "task", "metric", "flops", "flops_counted", "wall_s")} == {
            key: getattr(cell, key) for key in ("row", "task", "metric", "flops", "flops_counted", "wall_s")
        }
        assert record["std"] == statistics.stdev(cell.scores)
    assert [record["row"] for record in document["reported"]] == list(PRINTED_AVERAGES)


def split_markdown(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines]


def test_markdown_has_our_rows_then_the_papers():
    cells = make_cells(["sciie", "docstrings"])
    text = report.table_markdown(cells, notes=["K = 20."])
    header, _, *rows = split_markdown(text)
    assert header[1:3] == ["sciie (macro-F1)", "docstrings (macro-F1)"]
    assert header[3:] == ["avg", "FLOPs", "FLOPs counted", "data", "time"]
    assert len({len(row) for row in (header, *rows)}) == 1
    names = [row[0] for row in rows]
    assert names == [*ROWS, *(f"{name} (reported)" for name in PRINTED_AVERAGES)]
    best = cells[4]
    assert rows[2][1] == f"**{best.mean:.2f} ± {best.std:.2f}**"
    assert rows[2][3] == f"{statistics.fmean(c.mean for c in cells[4:]):.2f}"
    assert rows[3][2:4] == ["–", "–"]  # the paper has no such task, so no average either
    assert text.endswith("- K = 20.\n")


def test_counted_operations_stand_beside_the_papers_or_nowhere():
    cells = make_cells(["docstrings"], flops=1e15)
    unknown = report.Cell(**(vars(cells[0]) | {"flops_counted": 0.0}))
    _, _, *rows = split_markdown(report.table_markdown([unknown, *cells[1:]]))
    assert [row[3:5] for row in rows] == [["1.00E15", "–"], ["2.00E15", "2.20E15"], ["3.00E15", "3.30E15"]]
    assert json.loads(report.table_json([unknown]))["cells"][0]["flops_counted"] is None
    assert next(csv.DictReader(io.StringIO(report.table_csv([unknown]))))["flops_counted"] == ""


def test_a_table_without_the_papers_tasks_or_metric_reports_nothing():
    cells = make_cells(["docstrings"], seeds=1)
    assert "reported" not in report.table_markdown(cells)
    assert "±" not in report.table_markdown(cells)
    other_metric = report.Cell(**(vars(cells[0]) | {"task": "sciie", "metric": "accuracy"}))
    assert json.loads(report.table_json([other_metric]))["reported"] == []


def test_the_papers_averages_appear_where_all_its_tasks_do():
    rows = split_markdown(report.table_markdown(make_cells(TASKS)))
    averages = {row[0]: row[9] for row in rows}
    assert averages["BERT-Base (reported)"] == "83.46"
    assert averages["TLM small (reported)"] == "83.78"


def test_a_row_that_lacks_a_task_has_no_average():
    cells = make_cells(["a", "b"])
    rows = split_markdown(report.table_markdown([cells[0], *cells[2:]]))
    assert [row[0] for row in rows[2:]] == list(ROWS)
    assert rows[2][2] == "–"
    assert rows[2][3] == "–"


@pytest.mark.parametrize("tasks", [("docstrings",), ("sciie", "docstrings"), TASKS])
def test_the_terminal_table_fits_and_shows_every_score(tasks):
    console = Console(width=100, file=io.StringIO())
    cells = make_cells(tasks)
    report.print_table(cells, console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 100
    assert "…" not in shown
    for cell in cells:
        assert f"{cell.mean:.2f} ± {cell.std:.2f}" in shown
        assert cell.row in shown


# figures


def pixels(png):
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return np.asarray(image.convert("RGB"))


def has_colour(image, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((image == wanted).all(axis=-1).any())


@pytest.mark.parametrize(
    ("tasks", "rows", "seeds"),
    [
        (["docstrings"], ROWS, 1),
        (["sciie", "docstrings"], ROWS, 3),
        (TASKS, ROWS, 3),
        (["a", "b", "c", "d"], [f"a row with quite a long name, {n}" for n in range(5)], 2),
    ],
)
def test_the_figure_shows_every_row_in_its_colour(tasks, rows, seeds):
    cells = make_cells(tasks, rows=rows, seeds=seeds)
    png = report.score_against_flops(cells)
    image = pixels(png)
    assert image.shape[0] > 300
    assert image.shape[1] > 300
    assert (image == 255).all(axis=-1).mean() > 0.5  # a white ground with something on it
    assert all(has_colour(image, COLOURS[index]) for index in range(len(rows)))
    assert png == report.score_against_flops(cells)


def test_the_figure_has_a_place_for_a_row_without_training():
    cells = make_cells(["docstrings"], flops=0.0)
    assert has_colour(pixels(report.score_against_flops(cells)), COLOURS[0])


def test_colour_and_marker_together_tell_36_rows_apart():
    pairs = Counter((n % len(COLOURS), marker_of(n)) for n in range(36))
    assert max(pairs.values()) == 1


@pytest.mark.parametrize("levels", ["grid", "drawn", "single"])
def test_the_sweep_figure_shows_every_method(levels):
    trials = make_trials()
    if levels == "drawn":
        draw = random.Random(3)
        trials = [trial | {"k": draw.randint(1, 5000)} for trial in trials]
    if levels == "single":
        trials = [trials[0], trials[-1]]
    image = pixels(report.sweep_figure(trials))
    assert has_colour(image, COLOURS[0])
    assert has_colour(image, COLOURS[1])


def test_no_figure_touches_pyplot():
    for path in Path(tlm_ray.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
            assert not [name for name in imported if "pyplot" in name], path.name


# files


def test_publish_table_writes_what_it_names(tmp_path):
    cells = make_cells(["sciie", "docstrings"])
    uris = report.publish_table(cells, str(tmp_path / "results"), notes=["a note"])
    assert sorted(uris) == [f"main_table.{kind}" for kind in ("csv", "json", "md", "png")]
    assert storage.read_bytes(uris["main_table.md"]).decode() == report.table_markdown(cells, notes=["a note"])
    assert storage.read_bytes(uris["main_table.csv"]).decode() == report.table_csv(cells)
    assert len(json.loads(storage.read_bytes(uris["main_table.json"]))["cells"]) == len(cells)
    assert pixels(storage.read_bytes(uris["main_table.png"])).std() > 0


def test_publish_sweep_writes_the_best_trial_first(tmp_path):
    failed = {"k": np.int64(7), "rho1": 1, "rho2": 1, "method": "bm25", "dev": math.nan, "seed": 3}
    trials = [failed, *make_trials()]
    uris = report.publish_sweep(trials, f"file://{tmp_path}/sweep")
    assert sorted(uris) == [f"sweep.{kind}" for kind in ("csv", "json", "md", "png")]
    written = json.loads(storage.read_bytes(uris["sweep.json"]))["trials"]
    scores = [trial["dev"] for trial in written]
    assert scores[:-1] == sorted((trial["dev"] for trial in trials[1:]), reverse=True)
    assert written[-1] == failed | {"k": 7, "dev": None}
    assert pixels(storage.read_bytes(uris["sweep.png"])).std() > 0


def test_sweep_tables_agree():
    trials = make_trials()
    ordered = json.loads(sweep_json(trials))["trials"]
    lines = list(csv.DictReader(io.StringIO(sweep_csv(trials))))
    assert [float(line["dev"]) for line in lines] == [trial["dev"] for trial in ordered]
    _, _, *rows = split_markdown(sweep_markdown(trials))
    assert [row[5] for row in rows] == [f"{trial['dev']:.2f}" for trial in ordered]


def test_a_sweep_without_a_score_is_still_published(tmp_path):
    trials = [trial | {"dev": None} for trial in make_trials()]
    uris = report.publish_sweep(trials, str(tmp_path))
    assert "failed" in storage.read_bytes(uris["sweep.md"]).decode()
    with pytest.raises(ValueError, match="trial 0 lacks dev"):
        report.publish_sweep([{"k": 1, "rho1": 1, "rho2": 1, "method": "bm25"}], str(tmp_path))
