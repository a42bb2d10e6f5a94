"""Rows of the paper's tables: stage one alone, a share of the corpus, one of several corpora."""

import importlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from page_reading import Page
from safetensors.torch import load_file
from small import laid_out, small_flow, small_recipe
from tracked import empty_store
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tlm_ray import Changes, Data, Passages, Place, present, storage
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.evaluation.predictions import read_predictions
from tlm_ray.plain import PLAIN
from tlm_ray.report.published import read_published, rows_beside
from tlm_ray.report.tables.sentences import summary
from tlm_ray.runs import experiment
from tlm_ray.runs.recipes.paper import baseline, pretraining, recipe_for
from tlm_ray.runs.stages.making import make
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.tokens.counts import Counts

PLAIN_NAMES = [one.name for one in PLAIN]
pytestmark = pytest.mark.usefixtures("alone")


def test_stage_one_alone_has_the_score_of_its_own_task_head_and_a_model(data, tmp_path):
    flow = small_flow(data, tmp_path)
    both, one = laid_out(flow), laid_out(flow, one_stage=True)
    assert one.stage_two is None and one.trained == (one.stage_one,)
    assert one.stage_one.fingerprint == both.stage_one.fingerprint, "which both rows share"
    record = make([one.metrics], flow.execution.root)[one.metrics.fingerprint]["facts"]
    history = one.stage_one.record(flow.execution.root)["facts"]["history"]
    assert record["dev"] == history[-1]["dev"]

    folder = storage.join(one.stage_one.folder(flow.execution.root), "task_model")
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    texts = load_task(flow.task("topics").folder(flow.execution.root)).texts("test")
    said = [model(**tokenizer(text, return_tensors="pt")).logits.argmax().item() for text in texts]
    assert said == read_predictions(one.metrics.folder(flow.execution.root), "test").predicted.tolist()

    shutil.rmtree(folder)
    shutil.rmtree(one.metrics.folder(flow.execution.root))
    fix = f"delete the folder '{Path(folder).parent}' to make it again"
    with pytest.raises(ValueError, match=re.escape(f"folder '{folder}': holds no model") + ".*" + re.escape(fix)):
        make([one.metrics], flow.execution.root)


@pytest.mark.parametrize("change", [{"rho1": None}, {"stage_one": None, "counts": None}, {"weighting": "mlm"}])
def test_stage_one_alone_must_learn_labels(change):
    with pytest.raises(
        ValueError, match=r"one_stage True: needs a stage one that learns|stage_one None: stage two needs"
    ):
        small_recipe(one_stage=True, **change)


def texts_of(flow, **changes) -> list[str]:
    stage = flow.passages(small_recipe(**changes))
    make([stage], flow.execution.root)
    store = PassageStore.open(stage.folder(flow.execution.root))
    return store.read(0, len(store))["text"].to_pylist()


def test_a_share_of_the_corpus_is_drawn_by_the_texts_alone(data, tmp_path):
    flow = small_flow(data, tmp_path / "root")
    whole, half, tenth = (texts_of(flow, corpus_share=share) for share in (1.0, 0.5, 0.1))
    assert set(tenth) < set(half) < set(whole)
    assert 0.4 < len(half) / len(whole) < 0.6
    assert half == texts_of(small_flow(data, tmp_path / "other", workers=2), corpus_share=0.5)
    assert flow.passages(small_recipe(corpus_share=1.0)).fingerprint == flow.passages(small_recipe()).fingerprint


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(ValueError, match=r"corpus_share .*: must be above 0 and at most 1"):
        small_recipe(corpus_share=share)


def test_a_recipe_may_name_one_of_several_corpora(data, tmp_path):
    (tmp_path / "web.txt").write_text("a page of the web\n\nanother page\n")
    web = open_corpus(str(tmp_path / "web.txt"), column="text")
    flow = replace(small_flow(data, tmp_path / "root"), corpora={"web": web})
    assert texts_of(flow, corpus="web") == ["a page of the web", "another page"]
    assert laid_out(flow, corpus="web").neighbours.fingerprint != laid_out(flow).neighbours.fingerprint
    with pytest.raises(ValueError, match="corpus 'books': the flow's corpora are web"):
        laid_out(flow, corpus="books")


def test_the_papers_recipes_are_of_two_stages_and_the_whole_corpus():
    recipe = recipe_for("sciie", "small")
    assert (recipe.one_stage, recipe.corpus, recipe.corpus_share) == (False, "", 1.0)


def test_an_adapted_encoder_begins_with_the_weights_of_the_stage_before(data, tmp_path):
    flow, recipe = small_flow(data, tmp_path), small_recipe()
    plm = pretraining(recipe)
    rows = {kind: flow.stages(baseline(recipe, plm, kind), "topics", 0) for kind in ("plain", "mlm", "dapt+tapt")}
    first = flow.stages(plm, "topics", 0).stage_one
    pretrained = {rows[kind].stages_one[0].fingerprint for kind in ("plain", "mlm")}
    assert pretrained == {first.fingerprint}, "one pretraining for both"
    assert [len(each.trained) for each in rows.values()] == [2, 3, 4]
    make([each.metrics for each in rows.values()], flow.execution.root)
    folders = [storage.join(stage.folder(flow.execution.root), "model") for stage in rows["mlm"].stages_one]
    before, after = (load_file(storage.join(folder, "model.safetensors")) for folder in folders)
    name = "embeddings.word_embeddings.weight"
    weights = [next(tensor for key, tensor in each.items() if key.endswith(name)) for each in (before, after)]
    moved = (weights[1] - weights[0]).abs().max()
    assert 0 < moved < 0.05, "a dozen steps at a rate of 1e-3 do not lead far from where they begin"
    tokenizers = [Path(folder, "tokenizer.json").read_bytes() for folder in folders]
    assert tokenizers[0] == tokenizers[1]


@pytest.mark.parametrize(
    "change", [{"counts": Counts()}, {"after": small_recipe(start=Pretrained("x"), stage_one=None)}]
)
def test_a_recipe_can_only_come_after_one_with_a_stage_one(change):
    with pytest.raises(ValueError, match="after: must be a recipe with a stage one"):
        small_recipe(**({"after": small_recipe()} | change))


TABLES = {
    "rho1": ("Rho1", {"rho1s": [1]}, ["rho1 = 1", "general text only"]),
    "pretrained": ("PretrainedTable", {"kinds": ["plain"]}, ["PLM", "TLM"]),
}


@pytest.mark.parametrize("script", TABLES)
def test_a_table_from_its_options_to_its_files(data, tmp_path, monkeypatch, capsys, script):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: replace(execution, workers=1, side_by_side=1))
    kind, values, rows = TABLES[script]
    place = Place(root=f"{tmp_path}/root", out=f"{tmp_path}/out", tracking_uri=empty_store(tmp_path))
    source = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    short = Changes(steps=4, steps_two=4, precision="fp32")
    table = getattr(importlib.import_module(script), kind)(
        data=source, place=place, changes=short, passages=Passages(k=5), seeds=1, **values
    )
    results = present(table, connect=lambda: None)
    assert results is not None and [row for row in results.rows if row not in PLAIN_NAMES] == rows
    *_, last, kept, end = capsys.readouterr().out.splitlines()
    assert summary(results)[-1].endswith(last), "of several lines, where the terminal is narrow"
    assert end == f"All intervals and notes: {tmp_path}/out/{script}.html (next to it: .md, .csv, .json, .tex, .png)"
    assert [verdict.above for verdict in results.verdicts] == [results.view.against]
    names = {f"{script}.{k}" for k in ("md", "csv", "json", "tex", "png", "html")}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names | {"kept"}
    copy = Path(kept.removeprefix("Kept when another table of this name is written: "))
    assert re.fullmatch(rf"{script}_topics_\w+_[0-9a-f]{{8}}\.html", copy.name)
    assert copy.read_bytes() == (tmp_path / "out" / f"{script}.html").read_bytes()
    assert {"answers", "differences", "learning", "errors", "retrieved"} <= set(Page(copy.read_text()).sections)
    published = read_published(f"{tmp_path}/out/{script}.json")
    assert [each.why for each in rows_beside(published, published)] == ["the same trainings"] * len(results.rows)
    costs = {cell.row: (cell.flops, cell.data_bytes) for cell in results.cells}
    if script == "pretrained":
        assert costs["PLM"][0] > costs["TLM"][0] * 0.9 and costs["PLM"][1] > 0, "its pretraining counts"
