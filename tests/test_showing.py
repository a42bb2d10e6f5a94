"""What a notebook shows of results, sweeps, selections and models, and their data frames."""

import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from page_reading import Page
from report_cells import PARAMETERS, make_cells, make_differences, make_trials, of
from scipy.stats import t
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr

from tlm_ray import SelectionStore, TLMClassifier, storage
from tlm_ray.report.statistics.comparison import difference_text
from tlm_ray.report.story import Learned
from tlm_ray.report.sweeps import sort_trials, sweep_markdown
from tlm_ray.report.tables.exports import table_markdown
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.report.tables.latex import table_latex
from tlm_ray.report.tables.sentences import standing, summary
from tlm_ray.retrieval.selection import write_texts
from tlm_ray.runs.sweeps.sweeping import Swept

ATTACK = "<script>alert('1')</script>\"&"
SHARES = {"worse": 0.5, ATTACK: 0.9}


@pytest.fixture(scope="module")
def results():
    tasks = ["sciie", "a_task"]
    cells = make_cells(tasks, rows=tuple(SHARES))
    return of(cells, make_differences(tasks, SHARES), against=ATTACK, notes=[ATTACK])


@pytest.fixture(scope="module")
def swept():
    failed = {"k": 7, "rho1": 1, "rho2": 1, "method": ATTACK, "dev": math.nan}
    return Swept(trials=[failed, *make_trials()], parameters=PARAMETERS, best={}, result={}, steps=0)


def check_safe(html: str) -> Page:
    """Return the element, parsed; AssertionError if it runs a text of the data, or fetches something."""
    page = Page(html)
    assert "script" not in {tag for tag, _, _ in page.attributes} and "<script" not in html
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    assert "url(http" not in html and "@import" not in html
    assert page.attributes[0][2].endswith("mathjax_ignore tex2jax_ignore"), "dollars in a text are no formulas"
    return page


def test_results_show_their_table_intervals_notes_and_figure(results):
    page = check_safe(results._repr_html_())
    table, differences = page.tables[""]
    assert table[1:] == [[line.name, *line.texts] for line in make_grid(results).lines]
    expected = [[other, *map(difference_text, line)] for other, line in results.comparison.lines]
    found = [[other, *(re.sub(r"(?<=\))p .*", "", cell) for cell in line)] for other, *line in differences[1:]]
    assert found == expected and "p < 0.001" in differences[1][1]
    assert re.search(r"\(\d+\.\d to \d+\.\d\)", expected[0][1])
    sentences = [*standing(results), *summary(results)]
    assert [text for text in page.text("p") if text in sentences] == sentences
    assert {results.comparison.meaning, ATTACK} <= set(page.text("li"))
    assert [tag for tag, name, value in page.attributes if value.startswith("sciie: score")] == ["svg"]
    assert repr(results) + "\n" == table_markdown(results)


def test_the_style_of_an_element_concerns_no_other_part_of_a_notebook(results, swept):
    for shown in (results, swept):
        (style,) = re.findall(r"<style>(.*?)</style>", shown._repr_html_(), re.S)
        depth, outside = 0, ""
        for sign in style:
            depth += (sign == "{") - (sign == "}")
            outside += sign if depth == 0 else ""
        selectors = [each.strip() for part in outside.split("}") if part.strip() for each in part.split(",")]
        assert depth == 0 and selectors and all(".tlm-ray" in each for each in selectors)
        names = re.findall(r"var\((--\w+)\)", shown._repr_html_())
        assert set(names) <= set(re.findall(r"(--\w+):", style))


def test_the_frame_of_results_has_the_numbers_of_each_cell(results):
    frame = results.to_pandas()
    assert frame.index.to_list() == list(SHARES) and frame.columns.names == ["task", "number"]
    for cell in results.cells:
        found = frame.loc[cell.row, cell.task]
        low, high = t.interval(0.95, 2, np.mean(cell.scores), np.std(cell.scores, ddof=1) / 3**0.5)
        numbers = [np.mean(cell.scores), np.std(cell.scores, ddof=1), low, high, 3, cell.flops, 45e6, 600]
        np.testing.assert_allclose(found.to_numpy(float), numbers)
        assert list(found.index) == ["score", "std", "low", "high", "seeds", "flops", "data_bytes", "wall_s"]
        line = next(line for line in make_grid(results).lines if line.name == cell.row)
        assert f"{found['score']:.2f} ± {found['std']:.2f}" == line.texts[results.tasks.index(cell.task)]


def test_what_is_unknown_is_nan():
    one, other = make_cells(["sciie", "x"], rows=("a", "b"), seeds=1)[:3:2]
    frame = of([*make_cells(["x"], rows=("a",), seeds=2), one, other]).to_pandas()
    assert frame.loc["b", "x"].isna().all() and frame.loc["a", "x"].notna().all()
    assert frame.loc["a", "sciie"].isna().to_list() == [False, True, True, True, *[False] * 4]


def test_results_as_latex_are_those_of_the_file(results):
    assert results.to_latex() == table_latex(results)
    assert r"\textless{}script\textgreater{}alert('1')" in results.to_latex()


def test_a_sweep_shows_its_trials_best_first_and_a_figure_per_parameter(swept):
    page = check_safe(swept._repr_html_())
    (table,) = page.tables[""]
    best = max(make_trials(), key=lambda trial: trial["dev"])
    assert table[0] == ["trial", *PARAMETERS, "dev"]
    assert table[1] == ["1", *(str(best[name]) for name in PARAMETERS), f"{best['dev']:.2f}"]
    assert table[-1][-2:] == [ATTACK, "failed"]
    drawn = [value for _, name, value in page.attributes if name == "aria-label"]
    assert drawn == [f"score over {name}" for name in ("k", "rho1", "method")], "rho2 has one value"
    assert repr(swept) + "\n" == sweep_markdown(sort_trials(swept.trials, PARAMETERS))


def test_the_frame_of_a_sweep_has_a_row_per_trial(swept):
    frame = swept.to_pandas()
    assert frame.columns.to_list() == [*PARAMETERS, "dev"]
    by_dev = sorted(make_trials(), key=lambda trial: -trial["dev"])
    assert frame.iloc[:-1].to_dict("records") == by_dev
    assert frame.iloc[-1]["method"] == ATTACK and math.isnan(frame.iloc[-1]["dev"])


def test_a_sweep_as_latex_has_the_cells_of_its_markdown(swept):
    lines = [line for line in swept.to_latex().splitlines() if line.endswith(r" \\")]
    best = max(make_trials(), key=lambda trial: trial["dev"])
    assert lines[0] == r"{}trial & k & rho1 & rho2 & method & dev \\"
    assert lines[1] == f"{{}}1 & {best['k']} & {best['rho1']} & 20 & {best['method']} & {best['dev']:.2f} " + r"\\"
    assert r"\textless{}script\textgreater{}" in lines[-1] and lines[-1].endswith(r"& failed \\")


def selected(folder: str, texts: list[str]) -> SelectionStore:
    """Return a stored selection of texts."""
    columns = {"passage": pa.array(range(len(texts)), pa.int64()), "text": texts}
    columns |= {"rank": pa.array([0] * len(texts), pa.int32()), "source": [ATTACK] * len(texts)}
    write_texts(folder, pa.table(columns))
    return SelectionStore.open(folder)


def test_a_selection_shows_its_first_passages_cut(tmp_path):
    page = check_safe(selected(str(tmp_path), [ATTACK, *["long " * 100] * 20])._repr_html_())
    (table,) = page.tables[""]
    assert table[0] == ["query", "rank", "score", "text", "source", "passage"] and len(table) == 11
    assert table[1] == ["-1", "0", "0.00", ATTACK, ATTACK, "0"] and table[2][3] == "long " * 40 + "…"
    assert page.text("p") == ["21 passages; the first 10, by rank:"]


def test_the_frame_of_a_selection_names_the_training_text_of_a_passage(tmp_path, monkeypatch):
    store = selected(str(tmp_path), ["a", "b"])
    assert store.to_pandas(["x"])["query_text"].isna().all() and "query_text" not in store.to_pandas()
    read = store.read().set_column(4, "query", pa.array([1, -1], pa.int64()))
    monkeypatch.setattr(SelectionStore, "read", lambda self: read)
    frame = store.to_pandas(["x", ATTACK])
    expected = {"query": [1, -1], "query_text": [ATTACK, None], "rank": [0, 0], "score": [0.0, 0.0]}
    expected |= {"text": ["a", "b"], "source": [ATTACK, ATTACK], "passage": [0, 1]}
    pd.testing.assert_frame_equal(frame, pd.DataFrame(expected), check_dtype=False)
    with pytest.raises(ValueError, match="queries: 1 texts, but row 1 found a passage; give all training texts"):
        store.to_pandas(["x"])


def test_a_classifier_shows_scikit_learns_diagram_until_it_is_fitted():
    model = TLMClassifier(seed=3)
    numbered = re.compile(r"sk-\w+-id-\d+")
    assert numbered.sub("", model._repr_html_()) == numbered.sub("", estimator_html_repr(model))
    with pytest.raises(NotFittedError, match="call fit first"):
        model.to_pandas()


def test_a_fitted_classifier_shows_its_report_and_curves():
    model, history = TLMClassifier(), [{"step": 1, "task": 2.5}, {"step": 2, "task": 1, "dev": 40}]
    model.model_, model.report_ = "folder", ("3 classes", ATTACK)
    model.learned_ = [Learned(row="r", task=ATTACK, seed=0, stage="stage two", history=history)]
    page = check_safe(model._repr_html_())
    assert page.text("li") == ["3 classes", ATTACK]
    assert page.text("figcaption") == ["stage two: task loss", "stage two: dev score, %"]
    assert model._repr_mimebundle_()["text/html"] == model._repr_html_()
    expected = pd.DataFrame({"stage": ["stage two"] * 2, "step": [1, 2], "task": [2.5, 1.0], "dev": [math.nan, 40.0]})
    pd.testing.assert_frame_equal(model.to_pandas(), expected, check_dtype=False)


def test_a_classifier_saved_by_an_earlier_version_shows_losses_and_scores_alone(tmp_path):
    learned = {
        "row": "r",
        "task": "t",
        "seed": 0,
        "stage": "stage two",
        "history": [{"step": 1, "task": 2.5, "padded": 1}],
    }
    told = {"classes": ["a", "b"], "order": [0, 1], "columns": 1, "dev": 40.0, "report": ["2 classes"]}
    storage.write_json(storage.join(str(tmp_path), "classes.json"), told | {"learned": [learned]})
    assert TLMClassifier.load(str(tmp_path)).to_pandas().to_dict("records") == [
        {"stage": "stage two", "step": 1, "task": 2.5}
    ]
