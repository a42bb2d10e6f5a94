"""The notebooks run as a reader would run them, and what they keep names no machine and no time."""

import json
import re

import nbformat
import pytest
from executed import NOTEBOOKS, TIME, execute, texts_of

BY_NAME = {path.stem: path for path in NOTEBOOKS}


def outputs(book) -> dict[str, str]:
    """Return what each cell of code put out, by its source; AssertionError for an error."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not [one for cell in cells for one in cell.outputs if one.output_type == "error"]
    return {cell.source: texts_of(cell) for cell in cells}


def put_out(found: dict[str, str], source: str) -> str:
    """Return what the one cell put out whose source has a text."""
    (text,) = [text for own, text in found.items() if source in own]
    return text


# of Ray's work in the notebook's own process; the other notebooks have a Ray
WITHOUT_RAY = """
import ray
from alone import in_this_process
patched = in_this_process()
patched.__enter__()
ray.init = lambda **options: None
"""


@pytest.mark.slow
def test_a_score_is_the_sum_of_its_terms_and_bm25_is_nearer_the_task_than_chance(tmp_path):
    found = outputs(execute(BY_NAME["retrieval"], tmp_path, first=WITHOUT_RAY, rows=20))
    of_terms, of_passage = re.findall(r"\d+\.\d\d", put_out(found, "sum of the terms"))
    assert float(of_terms) == pytest.approx(float(of_passage), abs=0.02)
    sources = put_out(found, "pd.DataFrame(shares)")
    ((bm25, random, corpus),) = re.findall(r"^click.csv +([\d.]+) +([\d.]+) +([\d.]+)$", sources, re.M)
    assert float(bm25) > 2 * max(float(random), float(corpus))
    assert "passages; the first 10, by rank:</p>" in found['chosen["bm25"]']


@pytest.mark.slow
@pytest.mark.long
def test_own_data_are_learned_saved_and_opened(tmp_path):
    found = outputs(execute(BY_NAME["own_data"], tmp_path, share=0.1))
    shown = put_out(found, "model.fit(")
    assert "2 classes, 180 rows to train on, 20 of dev" in shown
    assert 'aria-label="notebook, stage two: task by steps"' in shown
    assert "model.safetensors" in put_out(found, "model.save(")
    assert re.search(r"^TLM +[01]\.\d+$", put_out(found, "accuracy on test rows"), re.M)
    opened = re.findall(r"'(\w+)'", put_out(found, "opened.config.id2label"))
    assert len(opened) == 2 and set(opened) <= {"networkx", "sqlalchemy"}


@pytest.mark.slow
@pytest.mark.long
def test_a_table_of_ones_own_has_intervals_latex_and_a_sweep(tmp_path):
    found = outputs(execute(BY_NAME["extending"], tmp_path, share=0.02, seeds=2, ks=[10]))
    assert re.search(r"BM25 text</th>.*?\d ± \d", found["outcome"], re.S)
    assert "{}BM25 text minus & packages" in put_out(found, "to_latex")
    assert re.search(r"^0 +10 +\d+\.\d+ +BM25 text, seed 0$", put_out(found, "swept.to_pandas()"), re.M)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_notebook_is_kept_executed_without_traces_of_a_machine(name):
    book = nbformat.read(BY_NAME[name], as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kept = "\n".join(map(texts_of, code))
    assert len(kept) > 1000 and not TIME.search(kept)
    assert not re.findall(r"(?<![.\w])/(?:tmp|home|root|work|usr|opt)/", kept)
    assert BY_NAME[name].stat().st_size < 150_000
    assert set(book.metadata) == {"kernelspec", "language_info"}


def test_there_are_three_notebooks_and_each_names_its_parameters():
    assert sorted(BY_NAME) == ["extending", "own_data", "retrieval"]
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        (tagged,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
        assert all(re.fullmatch(r"\w+ = .+  # .+\n?", line) for line in tagged["source"])
