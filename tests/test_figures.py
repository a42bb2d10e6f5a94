"""Figures: every row and method is there, in its colour, and the same bytes come again."""

import ast
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import matplotlib
import pytest
from matplotlib import pyplot
from report_cells import PARAMETERS, ROWS, has_colour, make_cells, make_trials, of, pixels

import tlm_ray.report
from tlm_ray import report
from tlm_ray.report.figures.drawing import COLOURS, DOTS_PER_INCH, MARKERS, SHADES, marker_of, to_png
from tlm_ray.report.figures.rows import rows_figure
from tlm_ray.report.figures.scores import points_of, score_figure
from tlm_ray.report.figures.sweep_figures import parallel_figure, slice_figure, study_of
from tlm_ray.report.paper import TABLE_4, TASKS
from tlm_ray.report.sweeps import sort_trials


def score_png(results):
    return to_png(score_figure(results))


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
    png = score_png(of(cells))
    image = pixels(png)
    assert image.shape[0] > 300
    assert image.shape[1] > 300
    assert (image == 255).all(axis=-1).mean() > 0.5  # a white ground with something on it
    assert all(has_colour(image, COLOURS[index]) for index in range(len(rows)))
    assert png == score_png(of(cells))


def test_the_figure_has_a_place_for_a_row_without_training():
    cells = make_cells(["docstrings"], flops=0.0)
    assert has_colour(pixels(score_png(of(cells))), COLOURS[0])


def test_colour_and_marker_together_tell_36_rows_apart():
    pairs = Counter((n % len(COLOURS), marker_of(n)) for n in range(36))
    assert max(pairs.values()) == 1


@pytest.mark.parametrize("levels", ["grid", "drawn", "single"])
def test_a_figure_of_a_sweep_has_its_trials_in_the_shade_of_their_score(levels):
    trials = make_trials()
    if levels == "drawn":
        draw = random.Random(3)
        trials = [trial | {"k": draw.randint(1, 5000)} for trial in trials]
    if levels == "single":
        trials = [trials[0], trials[-1]]
    study = study_of(sort_trials(trials, PARAMETERS), PARAMETERS)
    for draw_figure in (slice_figure, parallel_figure):
        image = pixels(to_png(draw_figure(study)))
        assert has_colour(image, SHADES[0]) and has_colour(image, SHADES[-1])
    assert to_png(slice_figure(study)) == to_png(slice_figure(study))


def test_a_sweep_without_scores_has_a_figure():
    assert pixels(to_png(slice_figure(study_of(make_trials()[:1], PARAMETERS)))).size
    assert pixels(to_png(slice_figure(study_of([t | {"dev": None} for t in make_trials()], PARAMETERS)))).size


def test_no_figure_leaves_anything_in_pyplot():
    """Optuna draws with pyplot, which keeps figures and has one style for all."""
    before, kept = dict(matplotlib.rcParams), pyplot.get_fignums()
    study = study_of(make_trials(), PARAMETERS)
    for figure in (slice_figure(study), slice_figure(study, "k"), parallel_figure(study)):
        assert figure.axes
    assert (dict(matplotlib.rcParams), pyplot.get_fignums()) == (before, kept)
    for path in Path(tlm_ray.report.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
            assert path.name == "sweep_figures.py" or not [name for name in imported if "pyplot" in name], path.name


def test_marks_of_one_place_are_side_by_side():
    cells = [replace(cell, flops=1e15) for cell in make_cells(["a"], rows=ROWS)]
    points = points_of(of(cells), "a")
    assert [point.shift for point in points] == [-1.0, 0.0, 1.0] and {point.x for point in points} == {1e15}
    (panel,) = score_figure(of(cells), "a").axes
    assert panel.get_ylim()[0] < min(c.mean - c.std for c in cells) < max(c.mean + c.std for c in cells)
    assert panel.get_ylim()[1] > max(c.mean + c.std for c in cells), "a moved mark is within the panel too"
    marks = [line for line in panel.lines if line.get_marker() in MARKERS]
    drawn = [line.get_transform().transform(line.get_xydata())[0][0] for line in marks]
    assert len(drawn) == 3 and all(b - a >= 0.1 * DOTS_PER_INCH - 1e-6 for a, b in pairwise(drawn))
    spread = points_of(of(make_cells(["a"], rows=ROWS)), "a")  # at once, twice and three times the FLOPs
    assert {point.shift for point in spread} == {0.0}


def test_every_row_has_a_line_of_its_own_in_the_first_figure():
    cells = make_cells(["a", "b"], rows=ROWS)
    (panel,) = rows_figure(of(cells, against=ROWS[1])).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == list(ROWS)
    assert [label.get_fontweight() for label in panel.get_yticklabels()] == ["normal", "bold", "normal"]
    means = [fmean(cell.mean for cell in cells if cell.row == row) for row in ROWS]
    marks = [line for line in panel.lines if line.get_marker() in MARKERS]
    assert [line.get_xdata()[0] for line in marks] == pytest.approx(means)


@pytest.mark.parametrize(
    ("values", "ranges", "scale"),
    [
        ([1e-4, 3e-4, 9e-4], {"rate": True}, "log"),  # as a few draws of tune.loguniform
        ([0.1, 0.2, 0.9], {"rate": False}, "linear"),
        ([1e-4 * 1.3**i for i in range(12)], {}, "log"),  # over decades
        ([0.5 + i / 100 for i in range(12)], {}, "linear"),
    ],
)
def test_a_logarithmic_range_has_a_logarithmic_axis(values, ranges, scale):
    trials = [{"rate": value, "dev": 50.0 + i} for i, value in enumerate(values)]
    study = study_of(sort_trials(trials, ["rate"]), ["rate"], ranges)
    assert slice_figure(study, "rate").axes[0].get_xscale() == scale
    assert {type(each).__name__ for each in study.trials[0].distributions.values()} == {"FloatDistribution"}


def test_values_of_a_sweep_are_named_without_quotes_and_apart():
    paths = [f"s3://bucket/a/very/long/path/of/encoder/{i}" for i in range(9)]
    trials = [{"start": path, "method": [None, "a$b$"][i % 2], "k": i, "dev": 50.0 + i} for i, path in enumerate(paths)]
    study = study_of(sort_trials(trials, ["start", "method", "k"]), ["start", "method", "k"])
    figure = slice_figure(study)
    to_png(figure)
    panels = {panel.get_xlabel(): panel for panel in figure.axes}
    names = {of: [tick.get_text() for tick in panel.get_xticklabels()] for of, panel in panels.items()}
    assert names["method"] == ["None", r"a\$b\$"] and names["k"] == list("012345678")
    assert names["start"] == [f"s3://b…/encoder/{i}" for i in range(9)]
    assert {of: panel.get_xticklabels()[0].get_rotation() for of, panel in panels.items()} == {
        "start": 30.0, "method": 0.0, "k": 0.0,
    }  # fmt: skip


def test_a_pretrained_row_is_marked_in_the_figure():
    cells = make_cells(["docstrings"])
    marked = [*cells[:-1], report.Cell(**(vars(cells[-1]) | {"pretrained": True}))]
    assert score_png(of(marked)) != score_png(of(cells))


def test_a_curve_shows_rows_at_their_number_the_papers_beside_them_and_others_as_lines():
    rows = ["TF-IDF", "K = 0", "K = 5", "K = 50"]
    cells = [
        replace(cell, split="dev", dev_scores=(), x=None if cell.row == "TF-IDF" else float(cell.row[4:]))
        for cell in make_cells(["sciie", "docstrings"], rows=rows)
    ]
    own = score_png(of(cells, split="dev", varied="k"))
    image = pixels(own)
    assert has_colour(image, COLOURS[0]) and has_colour(image, COLOURS[1]), "points, and a dotted line"
    assert own == score_png(of(cells, split="dev", varied="k"))
    assert own != score_png(of(cells, split="dev", varied="k", paper=TABLE_4))
