"""Pages of experiments and sweeps: what stands in them, that no data of theirs runs, that they need no other file."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_reading import Page
from report_cells import make_cells, make_differences, make_trials, of

from tlm_ray.evaluation.calibration import Bin
from tlm_ray.report.examined import Case, Examined, Near, Passage, Wrong
from tlm_ray.report.figures.drawing import to_png
from tlm_ray.report.figures.scores import score_figure
from tlm_ray.report.figures.sweep_figures import importances, study_of
from tlm_ray.report.page import experiment_page, sweep_page
from tlm_ray.report.page.learning import ALL_POINTS, MOST_POINTS, learning_charts, thinned
from tlm_ray.report.page.settings import compared
from tlm_ray.report.paper import TABLE_6
from tlm_ray.report.statistics.comparison import difference_text, p_text
from tlm_ray.report.story import Learned, Made, Provenance, Selected, Settings, Story, TaskData
from tlm_ray.report.sweeps import sort_trials
from tlm_ray.report.tables.grids import make_grid

ATTACK = "</script><script>alert('1')</script>\"'&"
PARAMETERS = ["k", "rho1", "rho2", "method"]
SHARES = {"task data only": 0.5, "TLM, random text": 0.6, "TLM, BM25 text": 0.9}


EXAMINED = Examined(
    task="sciie",
    row="TLM, BM25 text",
    run="",
    split="test",
    labels=["use", "other"],
    counts=np.array([[3, 1], [0, 4]]),
    bins=[Bin(4, 0.6, 0.75), Bin(4, 0.85, 1.0)],
    errors=[
        Wrong(
            row=2, text="a wrong <text>", gold="use", predicted="other", gold_share=0.1, predicted_share=0.9,
            nearest=[Near(text="a near text", label="use")],
        )
    ],
)  # fmt: skip
CASE = Case(
    task="sciie", method="bm25", text="what was asked", query="what was asked",
    passages=[Passage(text="it asked", source="part", rank=0, score=2.0)],
)  # fmt: skip


def history(steps=600):
    return [{"step": s, "general_mlm": 7 - s / 600, "task": 1.0} for s in range(1, steps + 1)]


def make_story(row="TLM, BM25 text", task="sciie", **changes):
    learned = [Learned(row=row, task=task, seed=seed, stage="stage one", history=history()) for seed in range(2)]
    story = Story(
        learned=[replace(each, history=[*each.history[:-1], each.history[-1] | {"dev": 61.25}]) for each in learned],
        settings=[
            Settings(row=name, task=task, kind="Recipe", values={"k": k, "scale": "mini"})
            for name, k in ((row, 50), ("other", 5))
        ],
        selected=[
            Selected(row=row, task=task, method="bm25", k=50, passages=1234, text_bytes=10**6, sources={row: 0.75})
        ],
        tasks=[TaskData(task=task, rows={"train": 3219}, train_bytes=1000, test_in_train=4)],
        made=[
            Made(name="stage_one", fingerprint="ab" * 32, seconds=120.0, flops=2e14, estimated_s=60.0),
            Made(name="stage_one", fingerprint="cd" * 32, seconds=60.0, flops=1e14, estimated_s=30.0),
            Made(name="metrics", fingerprint="ef" * 32, seconds=5.0),
        ],
        provenance=Provenance(
            command=f"python x.py --rows '{row}'", when="now", commit="c0ffee", root="/r", versions={}, hardware={}
        ),
    )
    return replace(story, **changes)


def test_the_page_has_the_tables_of_the_results():
    results = of(make_cells(["sciie"]), make_differences(["sciie"], SHARES), against="TLM, BM25 text", notes=["a note"])
    page = Page(experiment_page("main_table", results))
    (table,), (differences,) = page.tables["table"], page.tables["differences"]
    grid = make_grid(results)
    assert [row[1:] for row in table[1:]] == [list(line.texts) for line in grid.lines]
    assert [row[0] for row in table[1:]] == [line.name for line in grid.lines]
    told = [(row[0], row[1].partition("p ")[0]) for row in differences[1:]]
    assert told == [(other, difference_text(line[0])) for other, line in results.comparison.lines] and len(told) == 2
    ps = [p_text(line[0].reported_p) for _, line in results.comparison.lines]
    assert all(p in row[1] for row, p in zip(differences[1:], ps, strict=True))
    assert "a note" in page.text("li")


def test_what_is_not_there_is_left_out():
    results = of(make_cells(["sciie"]))
    assert Page(experiment_page("x", results)).sections == ["answers", "table", "scores"]
    assert Page(experiment_page("x", results, Story())).sections == ["answers", "table", "scores"]
    whole = Page(experiment_page("x", results, make_story(examined=[EXAMINED], cases=[CASE])))
    assert whole.sections == [
        "answers", "table", "scores", "learning", "errors", "recipes", "data", "retrieved", "cost", "provenance",
    ]  # fmt: skip
    assert Page(experiment_page("x", results, make_story(learned=(), made=()))).sections[3:] == [
        "recipes", "data", "provenance",
    ]  # fmt: skip


def test_confusions_errors_and_calibration_are_on_the_page():
    page = Page(experiment_page("x", of(make_cells(["sciie"])), make_story(examined=[EXAMINED], cases=[CASE])))
    (matrix,) = page.tables["errors"]
    assert [row[1:] for row in matrix] == [["use", "other"], ["3", "1"], ["", "4"]]
    assert "Expected calibration error 15.0 %" in page.text("figcaption")
    assert page.text("blockquote") == ["a wrong <text>", "what was asked"]
    assert [text for text in page.text("li") if "near" in text] == [": a near text"]
    assert page.text("mark") == ["asked"]
    many = replace(
        EXAMINED, labels=[f"c{i}" for i in range(30)], counts=np.eye(30, dtype=int) + np.eye(30, k=1, dtype=int)
    )
    (pairs,) = Page(experiment_page("x", of(make_cells(["sciie"])), make_story(examined=[many]))).tables["errors"]
    assert pairs[1] == ["c0", "c1", "1"] and len(pairs) == 11


def test_the_story_is_told():
    page = Page(experiment_page("x", of(make_cells(["sciie"])), make_story()))
    assert page.tables["recipes"] == [[["", "TLM, BM25 text", "other"], ["k", "50", "5"]]]
    assert [*page.text("dt")[:1], *page.text("dd")[:1]] == ["scale", "mini"]
    selected, tasks = page.tables["data"]
    assert selected[1] == ["sciie", "bm25", "50", "1,234", "1 MB", "TLM, BM25 text 75 %, others 25 %", "TLM, BM25 text"]
    assert tasks[1] == ["sciie", "3,219", "–", "–", "1 kB", "4"]
    costs = page.tables["cost"][0]
    assert costs[1:] == [
        ["stage_one", "2", "3.0 min", "1.5 min", "3.00E14", "–"],
        ["metrics", "1", "5.0 s", "–", "–", "–"],
        ["all", "3", "3.1 min", "–", "3.00E14", "–"],
    ]


def test_a_part_that_a_row_lacks_is_told_by_its_name_alone():
    values = ({"k": 5, "method": "Bm25", "method.b": 0.75, "after": None}, {"k": 5, "method": "Random", "after.k": 9})
    both = [Settings(row=row, task="t", kind="Recipe", values=own) for row, own in zip("ab", values, strict=True)]
    other_task = Settings(row="b", task="u", kind="Recipe", values=values[1] | {"after.k": 1})
    (found,) = compared([*both, other_task])
    assert found.differing == [
        ("method", ["Bm25", "Random"]), ("after", ["none", "–"]), ("after.k", ["–", "9 (t); 1 (u)"]),
    ]  # fmt: skip
    assert found.common == [("k", "5"), ("method.b", "0.75")]


def test_losses_and_the_dev_score_are_drawn_apart_a_line_a_seed():
    (chart,) = learning_charts(make_story().learned)
    assert [title.partition(": ")[2] for title, _ in chart.panels] == ["general MLM loss", "task loss", "dev score, %"]
    assert all(drawing.count('class="series s0"') == 2 for _, drawing in chart.panels)


def test_a_long_history_is_thinned_to_means():
    line = thinned(history(), "general_mlm", 60)
    assert len(line) == 60 and line[-1][0] == 600
    assert line[0] == (10, pytest.approx(sum(7 - s / 600 for s in range(1, 11)) / 10))
    assert thinned(history(7), "general_mlm", 60) == [(s, 7 - s / 600) for s in range(1, 8)]
    draw = random.Random(5)  # matplotlib joins points on a straight line
    rough = [entry | {"general_mlm": draw.random(), "task": draw.random()} for entry in history()]
    many = [Learned(row=f"row {i}", task="t", seed=0, stage="stage one", history=rough) for i in range(900)]
    (chart,) = learning_charts(many)
    drawn = sum(len(re.findall("[ML]", path)) for _, panel in chart.panels for path in paths(panel))
    assert 900 * 2 * 10 < drawn <= ALL_POINTS < 900 * 2 * MOST_POINTS


def paths(panel):
    """Return the lines of a panel's series."""
    return re.findall(r'class="series s\d+"><path d="([^"]*)"', panel)


def evident(story, text):
    """Add evidence of which every text is this one."""
    near = Near(text=text, label=text)
    wrong = Wrong(row=0, text=text, gold=text, predicted=text, gold_share=0.0, predicted_share=1.0, nearest=[near])
    passage = Passage(text=text, source=text, rank=0, score=1.0)
    case = Case(task=text, method=text, text=text, query="nothing of it", passages=[passage])
    told = replace(EXAMINED, task=text, row=text, run=text, labels=[text, text], errors=[wrong])
    return replace(story, examined=[told], cases=[case])


@pytest.mark.parametrize("kind", ["experiment", "sweep"])
def test_no_text_of_the_data_becomes_a_part_of_the_page(kind):
    story = evident(make_story(row=ATTACK, task=ATTACK), ATTACK)
    trials = [trial | {"method": ATTACK, ATTACK: ATTACK} for trial in make_trials()]
    clean = make_trials()
    if kind == "experiment":
        rows = ("a", "b", ATTACK)
        attacked = experiment_page(ATTACK, of(make_cells([ATTACK], rows=rows), notes=[ATTACK], varied=""), story)
        rows = ("a", "b", "c" * len(ATTACK))  # of as many lines in a figure
        told = evident(make_story("c", "t"), "t")
        harmless = experiment_page("n", of(make_cells(["t"], rows=rows), notes=["n"]), told)
    else:
        attacked = sweep_page(ATTACK, trials, [*PARAMETERS, ATTACK], story)
        harmless = sweep_page(
            "n", [t | {"method": "m", "n": "n"} for t in clean], [*PARAMETERS, "n"], evident(make_story("c"), "t")
        )
    assert [(tag, name) for tag, name, _ in Page(attacked).attributes] == [
        (tag, name) for tag, name, _ in Page(harmless).attributes
    ]
    assert attacked.count("<script") == attacked.count("</script") == 1
    assert ATTACK in "".join(Page(attacked).texts["td"] + Page(attacked).texts["th"])


def test_a_name_is_no_formula_and_may_have_any_character():
    name = "$\\nosuch{ $a$ \x07\n"
    page = experiment_page("x", of(make_cells([name], rows=["a", name])), make_story(name, name))
    page += sweep_page("x", [trial | {"method": name, name: i} for i, trial in enumerate(make_trials())], ["k", name])
    assert page.count("<svg ") == 5 + 3
    assert to_png(score_figure(of(make_cells([name], rows=["a", name]))))


@pytest.mark.parametrize("kind", ["experiment", "sweep"])
def test_a_page_needs_no_other_file(kind):
    results = of(make_cells(["sciie"]), varied="rho2", paper=TABLE_6)
    page = experiment_page("x", results, make_story()) if kind == "experiment" else sweep_page(
        "x", make_trials(), PARAMETERS, make_story()
    )  # fmt: skip
    attributes = Page(page).attributes
    assert not {name for _, name, _ in attributes} & {"src", "srcset", "action", "data", "xlink:href"}
    inside = [value for _, name, value in attributes if name == "href"]
    inside += re.findall(r"url\((.*?)\)", page)
    ids = [value for _, name, value in attributes if name == "id"]
    assert inside and {f"#{each}" for each in ids} >= set(inside), "a marker or a clip path of the page itself"
    assert len(ids) == len(set(ids))
    assert not re.search(r"https?:|//[a-z]|@import|fetch\(|XMLHttp|import\(|WebSocket", page)


@pytest.mark.parametrize("kind", ["experiment", "sweep"])
def test_every_figure_has_a_name_and_the_colours_of_the_page(kind):
    results = of(make_cells(["sciie"]), paper=TABLE_6)
    page = experiment_page("x", results, make_story()) if kind == "experiment" else sweep_page(
        "x", make_trials(), PARAMETERS, make_story()
    )  # fmt: skip
    figures = re.findall(r"<svg .*?</svg>", page, re.S)
    assert len(figures) == (5 if kind == "experiment" else 7)
    for figure in figures:
        assert re.match(r'<svg viewBox="0 0 [\d. ]+" role="img" aria-label="[^"]+">', figure)
        assert "<text" in figure and "var(--" in figure
        assert not re.search(r"#[0-9a-f]{6}[ ;\"]", figure), "a colour without a value for dark pages"


def test_a_sweeps_page_has_every_trial_the_best_first():
    trials = [*make_trials(), {"k": 7, "rho1": 1, "rho2": 1, "method": "bm25", "dev": None, "state": "failed"}]
    trials.append({"k": 9, "rho1": 1, "rho2": 1, "method": "bm25", "dev": None, "stopped_step": 4, "stopped_dev": 31.0})
    page = Page(sweep_page("sweep", sort_trials(trials, PARAMETERS), PARAMETERS))
    (table,) = page.tables["trials"]
    assert table[0] == ["trial", *PARAMETERS, "dev", "stopped_step", "stopped_dev", "state"]
    scores = sorted((trial["dev"] for trial in trials if trial["dev"] is not None), reverse=True)
    assert [row[5] for row in table[1:]] == [*(f"{score:.2f}" for score in scores), "stopped", "failed"]
    assert f"dev score of {scores[0]:.2f}: best of {len(scores) + 1} trials on dev" in page.text("strong")[0]
    assert page.sections == ["importance", "slices", "parallel", "trials"]


def test_a_sweep_without_a_score_has_its_table_alone():
    assert Page(sweep_page("s", [t | {"dev": None} for t in make_trials()], PARAMETERS)).sections == ["trials"]
    assert Page(sweep_page("s", make_trials()[:1], PARAMETERS)).sections == ["trials"]


def test_what_can_be_pressed_is_a_button_within_a_heading_or_an_entry():
    files = Path(__file__).parents[1] / "tlm_ray" / "report" / "page" / "files"
    script, style = ((files / name).read_text() for name in ("page.js", "page.css"))
    assert 'createElement("button")' in script and "role" not in script.replace("roles", ""), "they keep their own role"
    assert ".legend button" in style and ".sorts th button" in style and "[role=button]" not in style


def test_the_parameter_that_decides_has_the_variance():
    def shares(scores):
        trials = [{"a": a, "b": b, "constant": 1, "dev": dev} for (a, b), dev in scores.items()]
        return importances(study_of(trials, ["a", "b", "constant"]))

    grid = {(a, b): 50.0 + 4 * a + 0.1 * ((a + b) % 2) for a in range(4) for b in range(6)}
    found = shares(grid)
    assert list(found) == ["a", "b"] and found["a"] > 0.99 and sum(found.values()) == pytest.approx(1)
    assert found == shares(grid)
    assert shares({(a / 100, (a * 37) % 100): float(a) for a in range(100)})["a"] > 0.9
    assert shares(dict(list(grid.items())[:7])) == shares(dict.fromkeys(grid, 50.0)) == {}


def test_648_trials_are_under_two_megabytes():
    trials = [
        {"k": k, "rho1": rho1, "rho2": rho2, "method": method, "dev": 40 + (k * 7 + rho1 * 3 + rho2) % 17 + i / 7}
        for i, method in enumerate(("bm25", "random", "dense"))
        for k in (1, 5, 10, 50, 500, 5000)
        for rho1 in (0, 1, 3, 19, 99, 999)
        for rho2 in (0, 1, 20, 100, 300, 1000)
    ]
    learned = [
        Learned(row=f"trial {i}", task="sciie", seed=0, stage="stage one", history=history(150)) for i in range(648)
    ]
    page = sweep_page("sweep", trials, PARAMETERS, make_story(learned=learned))
    assert len(trials) == 648 and len(page.encode()) < 2e6
    assert page.count("<tr>") > 648
