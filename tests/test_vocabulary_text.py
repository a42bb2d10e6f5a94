"""The text that a tokenizer is trained on: all that was retrieved, or what a row's own K keeps of it."""

import importlib
from pathlib import Path

import pytest
from small import laid_out, small_flow, small_recipe

from tlm_ray.runs.stages.making import make

pytestmark = pytest.mark.usefixtures("alone")


def tokenizer_of(flow, recipe):
    """Make a recipe's tokenizer; return its file's bytes."""
    stage = flow.stages(recipe, "topics", 0).tokenizer
    make([stage], flow.execution.root)
    return (Path(stage.folder(flow.execution.root)) / "tokenizer" / "tokenizer.json").read_bytes()


def test_each_row_of_the_table_of_k_has_the_tokenizer_of_a_user_with_that_k(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    table, flow = importlib.import_module("k").K(ks=[1, 3, 10]), small_flow(data, tmp_path)
    base = small_recipe(k=10, depth=10, vocabulary=300)
    rows = table.vary(base)
    found = {row: tokenizer_of(flow, recipe) for row, recipe in rows.items()}
    users = {f"K = {k}": tokenizer_of(flow, small_recipe(k=k, depth=k, vocabulary=300)) for k in (1, 3, 10)}
    users["task data only"] = tokenizer_of(flow, small_recipe(k=0, depth=10, rho1=0, vocabulary=300))
    assert found == users and len(set(found.values())) == 4
    retrieved = {
        stage.fingerprint for recipe in rows.values() if (stage := flow.stages(recipe, "topics", 0).neighbours)
    }
    assert len(retrieved) == 1, "one retrieval for all"


def test_all_that_was_retrieved_is_the_default_and_one_tokenizer_for_every_k(data, tmp_path):
    flow = small_flow(data, tmp_path)
    whole, part = (laid_out(flow, k=k, depth=10).tokenizer.fingerprint for k in (10, 1))
    assert whole == part == laid_out(flow, k=10, depth=10, vocabulary_text="k").tokenizer.fingerprint
    assert laid_out(flow, k=1, depth=10, vocabulary_text="k").tokenizer.fingerprint != whole


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="vocabulary_text 'rank': allowed are depth, k"):
        small_recipe(vocabulary_text="rank")
