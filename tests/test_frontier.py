"""The best that minutes buy: rows that are better on dev than all faster ones, their gains, and the figure."""

import json
import re
from dataclasses import replace

import pytest
from report_cells import make_cells, make_differences, of
from test_jobs import script
from test_options import kinds, parsed  # noqa: F401 - fixtures
from tracked import empty_store

from tlm_ray.report.figures.drawing import INK, MARKERS
from tlm_ray.report.figures.scores import legend_of, points_of, score_figure
from tlm_ray.report.page.charts import score_chart
from tlm_ray.report.tables.frontier import frontier_notes, frontier_of
from tlm_ray.runs.recipes.budget import recipe_tokens

ROWS = {"linear": (0.5, 70.0, 0.7), "slow": (3.0, 69.0, 0.72), "small": (2.0, 75.0, 0.8), "large": (9.0, 76.0, 0.803)}


@pytest.mark.slow
@pytest.mark.long
def test_the_command_ends_in_a_table_and_its_frontier(data, tmp_path):
    own = ["--tasks", "topics", "--task-root", str(data / "tasks"), "--corpus", str(data / "corpus"), "--k", "5"]
    place = ["--root", str(tmp_path / "tlm"), "--out", str(tmp_path / "out"), "--tracking-uri", empty_store(tmp_path)]
    steps = ["--steps", "200", "--steps-two", "200", "--seeds", "2", "--parts", "0.6", "--student-of", "TLM"]
    said = script("frontier", *own, *place, *steps)
    assert said.returncode == 0, said.stdout + said.stderr
    rows = [cell["row"] for cell in json.loads((tmp_path / "out" / "frontier.json").read_text())["cells"]]
    assert [row for row in rows if row.startswith("TLM")][::4] == ["TLM, 0.6 of it", "TLM", "TLM, student of 2"]
    assert rows[-4] == "TLM, student of 2" and rows[-2] == "TLM, student of 2 with linear model"
    assert re.search(r"topics: [\d.]+ s of training buy [^,]+", " ".join(said.stdout.split()))
    assert "time of training" in (tmp_path / "out" / "frontier.html").read_text()


def table(tasks=("reviews",), **view):
    """A table whose rows have so many minutes, such dev scores, and are right about so often."""
    cells = make_cells(tasks, rows=list(ROWS))
    cells = [replace(c, wall_s=60 * ROWS[c.row][0], dev_scores=(ROWS[c.row][1],) * 3) for c in cells]
    differences = make_differences(tasks, {row: share for row, (_, _, share) in ROWS.items()})
    return of(cells, differences, against="large", cost="minutes", **view)


def test_a_pretrained_encoder_has_its_ensembles_as_ours_has(parsed, tmp_path):  # noqa: F811
    given = ["--start", "x", "--layers", "2"]
    table, alone = (parsed("frontier", "--root", str(tmp_path), *words) for words in (given, []))
    trainings = table.trainings(table.flow())
    found = table.rows_with_ensembles(trainings)
    whole = [f"x {kind}{part}" for kind in ("fine-tuned", "adapted") for part in (", 0.25 of it", ", 0.5 of it", "")]
    ours = ["TLM, 0.25 of it", "TLM, 0.5 of it", "TLM"]
    assert found == [*ours, "x, 2 of its layers", *whole]
    recipes = {one.row: one.recipe for one in trainings}
    assert set(found) == set(recipes) - {"x frozen", "BM25 neighbours", *(row for row in recipes if "linear" in row)}
    for kind in ("fine-tuned", "adapted"):
        part, all_of_it = (recipe_tokens(recipes[f"x {kind}{part}"]) for part in (", 0.25 of it", ""))
        assert 0.9 * all_of_it < 4 * part <= all_of_it
    assert alone.rows_with_ensembles(alone.trainings(alone.flow())) == ours


def test_train_part_is_the_frontiers_part(parsed, tmp_path):  # noqa: F811
    place = ["--root", str(tmp_path), "--start", "x", "--before", "plain"]
    table, train = parsed("frontier", *place, "--parts", "0.33"), parsed("train", *place, "--part", "0.33")
    recipes = {one.row: one.recipe for one in table.trainings(table.flow())}
    flow = table.flow()
    fine_tuned = train.fine_tuned("x", "plain", "docstrings", flow, train.mixture)
    assert fine_tuned == recipes["x fine-tuned, 0.33 of it"] != recipes["x fine-tuned"]
    assert train.recipe("docstrings", flow, train.mixture) == recipes["TLM, 0.33 of it"]


def test_a_part_that_is_too_short_is_named(parsed, tmp_path):  # noqa: F811
    table = parsed("frontier", "--root", str(tmp_path), "--tokens", "240000")
    said = r"^--parts 0.25 0.5: a part of 'TLM' is too short; give larger parts \(part 0.25: .* needs 0.856 or more"
    with pytest.raises(ValueError, match=said):
        table.trainings(table.flow())


def test_the_frontier_is_what_no_faster_row_reaches_on_dev():
    results = table(("reviews", "news"))
    assert [cell.row for cell in frontier_of(results, "news")] == ["linear", "small", "large"]
    equal = [replace(c, dev_scores=(70.0,) * 3) for c in results.cells]
    assert [cell.row for cell in frontier_of(replace(results, cells=equal), "news")] == ["linear"]
    at_once = [replace(c, wall_s=60.0) for c in results.cells]
    assert [cell.row for cell in frontier_of(replace(results, cells=at_once), "news")] == ["large"]
    unknown = [replace(c, dev_scores=()) for c in results.cells]
    assert [cell.row for cell in frontier_of(replace(results, cells=unknown), "news")] == ["linear"]


def test_each_gain_is_said_with_its_interval_and_whether_it_is_shown():
    results = table()
    first, second, third = frontier_notes(results)
    means = {cell.row: cell.mean for cell in results.cells}
    assert first == f"reviews: 30.0 s of training buy linear, {means['linear']:.1f} % on test"
    (gain,) = results.comparison.of("small", "linear")
    low, high = gain.interval
    assert second == (
        f"reviews: 2.0 min of training buy small, {means['small']:.1f} % on test; "
        f"{gain.mean:+.1f} ({low:.1f} to {high:.1f}) from linear, p < 0.001 among 2 gains: shown"
    )
    assert third.startswith("reviews: 9.0 min of training buy large, ") and third.endswith(" among 2 gains: not shown")
    worse = [replace(each, mean=-abs(each.mean)) for each in results.differences]
    assert frontier_notes(replace(results, differences=worse))[1].endswith(": shown to be below")
    tuned = [replace(c, pretrained=c.row == "large") for c in results.cells]
    assert "buy large †, " in frontier_notes(replace(results, cells=tuned))[2]
    assert frontier_notes(replace(results, differences=()))[1].endswith("% on test")


def test_a_gain_of_one_training_is_not_tested_and_leaves_the_others_alone():
    results = table()
    pair = {"large", "small"}
    found = [replace(each, counts_seeds={each.row, each.other} != pair) for each in results.differences]
    _, small, large = frontier_notes(replace(results, differences=found))
    assert small.endswith(" from linear, p < 0.001: shown"), "the only gain that is tested"
    assert large.endswith(" from small, not tested: too few trainings; give --seeds 3")


def test_the_gains_of_all_tasks_are_corrected_together():
    alone, together = (frontier_notes(table(tasks)) for tasks in (("reviews",), ("reviews", "news", "mail")))
    p_alone, p_together = (float(notes[2].split("p = ")[1].split(" ")[0]) for notes in (alone, together))
    assert p_together > p_alone and len(together) == 9


def test_the_axis_of_the_figure_is_minutes():
    results = table()
    assert {p.name: p.x for p in points_of(results, "reviews")} == {row: one[0] for row, one in ROWS.items()}
    figure = score_figure(results)
    assert "time of training" in figure.get_supxlabel() and score_chart(results).heading == "Score over minutes"
    (panel,) = figure.axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1 min", "3 min", "10 min"]
    assert not panel.get_xticks(minor=True).size, "those of powers of ten say nothing of minutes"
    means = {cell.row: cell.mean for cell in results.cells}
    (line,) = [line for line in panel.lines if line.get_drawstyle() == "steps-post"]
    assert line.get_xydata().tolist() == [[ROWS[row][0], means[row]] for row in ("linear", "small", "large")]
    tuned = [replace(c, pretrained=c.row == "large") for c in results.cells]
    assert points_of(replace(results, cells=tuned), "reviews")[-1].name == "large †"
    flops = replace(results, view=replace(results.view, cost="FLOPs"))
    assert points_of(flops, "reviews")[0].x == pytest.approx(results.cells[0].flops)
    assert not [line for line in score_figure(flops).axes[0].lines if line.get_drawstyle() == "steps-post"]


@pytest.mark.parametrize("cost", ["minutes", "FLOPs"])
def test_an_ensemble_looks_like_its_members_with_another_fill(cost):
    both = "x, mean of 2 seeds with linear model"
    rows = ["linear", "x", "x, mean of 2 seeds", "x with linear model", both, "y", "y with linear model"]
    cells = [
        replace(c, row=row, members=row[0] if len(row) > 6 else "")
        for row in rows
        for c in make_cells(["a", "b"], rows=["any"])
    ]
    cells = [replace(c, flops=1e12 * 3**k, wall_s=60.0 * 3**k) for k, c in enumerate(cells)]
    results = of(cells, cost=cost)
    looks = {p.name: (p.colour, p.marker) for p in points_of(results, "b")}
    assert list(looks) == rows and len(set(looks.values())) == 3
    assert {looks[row] for row in rows[1:5]} == {looks["x"]} and looks["y with linear model"] == looks["y"]
    assert [p.fill for p in points_of(results, "b")] == ["full", "full", "left", "bottom", "none", "full", "bottom"]
    legend = [(p.name, p.fill, p.colour == INK) for p in legend_of(results)]
    assert legend[:3] == [(row, "full", False) for row in ("linear", "x", "y")]
    ensembles = {"…, mean of 2 seeds": "left", "… with linear model": "bottom", f"…{both[1:]}": "none"}
    assert legend[3:] == [(name, fill, True) for name, fill in ensembles.items()]
    signs = [(entry.sign, entry.colour) for entry in score_chart(results).legend]
    assert signs == [("●", "c0"), ("■", "c1"), ("◆", "c2"), ("◐", "dim"), ("◒", "dim"), ("○", "dim")]
    figure = score_figure(results)
    fills = {"full": ("full", False), "left": ("left", False), "bottom": ("bottom", False), "none": ("full", True)}
    marks = [line for line in figure.axes[1].lines if line.get_marker() in MARKERS]
    drawn = {float(line.get_xdata()[0]): looks_filled(line) for line in marks}
    assert drawn == {p.x: fills[p.fill] for p in points_of(results, "b")}
    assert [looks_filled(line) for line in figure.legends[0].legend_handles] == [fills[fill] for _, fill, _ in legend]


def test_over_a_varied_number_no_ensemble_is_explained():
    cells = make_cells(["a"], rows=["K = 5", "K = 5, mean of 2 seeds"])
    cells = [replace(c, x=5.0, members="K = 5" if "mean" in c.row else "") for c in cells]
    assert [p.name for p in legend_of(of(cells, varied="K"))] == ["here"]


def looks_filled(line):
    assert line.get_markerfacecoloralt() == "white", "nothing shows through"
    return line.get_fillstyle(), line.get_markerfacecolor() == "white"


def test_names_of_times_are_few_enough_to_be_read():
    results = table()
    slow = [replace(c, wall_s=10800.0 if c.row == "large" else c.wall_s / 60) for c in results.cells]
    (panel,) = score_figure(replace(results, cells=slow)).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1 s", "10 s", "3 min", "1 h"]
