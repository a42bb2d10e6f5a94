"""A classifier as scikit-learn's users know them: the same model from any library's table, and mistakes in one line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from datasets import ClassLabel, Dataset, DatasetDict
from huggingface_hub import ModelCard
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from small import GEOMETRY, small_flow, small_recipe
from test_adapted import saved
from test_inference import probabilities_of_transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertModel

from tlm_ray import TLMClassifier
from tlm_ray.runs.notebook.inputs import splits_of, texts_of
from tlm_ray.runs.notebook.rows import names_of, write_rows
from tlm_ray.runs.planning.estimates import CPU_FLOPS_PER_S
from tlm_ray.runs.recipes.adaptation import adapted
from tlm_ray.runs.recipes.budget import recipe_tokens
from tlm_ray.training.encoders.sizes import counted_parameters
from tlm_ray.training.encoders.starts import Scratch, Trimmed
from tlm_ray.training.objectives import MarkedLabels, Spans, TextLabels

T5 = Scratch(replace(GEOMETRY, family="t5"))
PAGE = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.fixture(scope="module")
def topics(data) -> pd.DataFrame:
    return pq.read_table(data / "tasks" / "topics" / "train.parquet").to_pandas()


@pytest.mark.usefixtures("ray_cluster")
def test_a_dataset_of_ray_has_the_rows_of_its_table(topics):
    import ray

    columns = {"text": "text", "label": "label"}
    assert splits_of(ray.data.from_pandas(topics), None, **columns) == splits_of(topics, None, **columns)


@pytest.mark.usefixtures("ray_cluster", "alone")
def test_any_table_gives_the_same_model_which_is_found_again(data, topics, tmp_path, monkeypatch, capsys):
    how = {"corpus": str(data / "corpus"), "recipe": small_recipe(), "root": str(tmp_path / "tlm"), "verbose": False}
    first = TLMClassifier(**how).fit(topics["text"], topics["label"])
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "tlm").rglob("record.json")}
    names = sorted(set(topics["label"]))
    of_hub = Dataset.from_dict({"text": topics["text"], "label": [names.index(each) for each in topics["label"]]})
    of_hub = of_hub.cast_column("label", ClassLabel(names=names))
    others = [
        (topics["text"].tolist(), topics["label"].tolist()),
        (topics[["text"]], topics["label"].to_numpy()),
        (topics, None),
        (pa.Table.from_pandas(topics), None),
        (of_hub, None),
        (DatasetDict(train=of_hub), None),
    ]
    for texts, labels in others:
        assert clone(first).fit(texts, labels).model_ == first.model_
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tlm").rglob("record.json")} == made

    found = first.predict_proba(topics["text"])
    assert found.shape == (60, 3) and first.classes_.tolist() == names
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert first.score(topics["text"], topics["label"]) == (first.predict(topics["text"]) == topics["label"]).mean()
    first.save(str(tmp_path / "kept"))
    again = TLMClassifier.load(str(tmp_path / "kept"))
    np.testing.assert_array_equal(again.predict_proba(topics["text"].tolist()), found)
    expected = probabilities_of_transformers(str(tmp_path / "kept"), topics["text"].tolist())
    np.testing.assert_allclose(expected, found, rtol=1e-4, atol=1e-5)
    pd.testing.assert_frame_equal(again.to_pandas(), first.to_pandas())
    steps = {"stage one": small_recipe().stage_one.steps, "stage two": small_recipe().stage_two.steps}
    assert again.to_pandas().groupby("stage")["step"].max().to_dict() == steps
    assert again.card_ == first.card_ == (tmp_path / "kept" / "README.md").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("my own")
    again.save(str(tmp_path / "other"))
    assert (tmp_path / "other" / "README.md").read_text() == "my own"
    assert again.report() == first.report() and "3 classes, 54 rows to train on, 6 of dev" in again.report()
    topics.to_csv(tmp_path / "reviews.csv", index=False)
    snippet, beside_linear = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    own = f'TLMClassifier(corpus="{data}/corpus", recipe=recipe, root="{tmp_path}/tlm")'
    assert 'TLMClassifier(corpus="texts")' in snippet
    monkeypatch.chdir(tmp_path)
    exec(beside_linear.replace('TLMClassifier(corpus="texts")', own), {"recipe": small_recipe()})
    assert re.search(r"^\['(sea|sky|kitchen)' '(sea|sky|kitchen)'\]$", capsys.readouterr().out, re.M)
    exec(snippet.replace('TLMClassifier(corpus="texts")', own), {"recipe": small_recipe()})
    assert "3 classes, 54 rows to train on" in capsys.readouterr().out
    assert (tmp_path / "reviews-model" / "model.safetensors").exists()
    card = ModelCard.load(tmp_path / "reviews-model" / "README.md")
    (score,) = card.data.eval_results
    assert (score.metric_name, score.dataset_split) == ("macro_f1", "dev") and card.data.tags == ["tlm_ray"]
    assert "- Labelled rows: 54 train, 6 dev.\n" in card.text and "passages, by bm25" in card.text
    assert f"TLMClassifier(corpus='{data}/corpus', recipe=Recipe(" in card.text
    (snippet,) = re.findall(r"```python\n(.*?)```", card.text, re.S)
    exec(snippet.replace("FOLDER", "reviews-model"), {})
    assert capsys.readouterr().out.startswith("[{'label': ")
    scores = cross_val_score(TLMClassifier(**how), topics["text"].to_numpy(), topics["label"].to_numpy(), cv=2)
    assert scores.shape == (2,) and not np.isnan(scores).any()
    steps = Pipeline([("same", FunctionTransformer()), ("tlm", TLMClassifier(**how))])
    found = GridSearchCV(steps, {"tlm__seed": [0]}, cv=2).fit(topics["text"].to_numpy(str), topics["label"])
    np.testing.assert_array_equal([found.cv_results_[f"split{fold}_test_score"][0] for fold in (0, 1)], scores)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_pairs_without_a_corpus_and_a_second_fit_of_other_data(topics, tmp_path, capsys):
    pairs = pd.DataFrame({"one": topics["text"], "two": topics["text"].str.upper()})
    model = TLMClassifier(recipe=small_recipe(), root=str(tmp_path)).fit(pairs, topics["label"] == "kitchen")
    assert "corpus: none, so the model learns from the labelled texts alone" in " ".join(
        capsys.readouterr().out.split()
    )
    assert model.classes_.tolist() == [False, True] and model.predict(pairs).dtype == bool
    with pytest.raises(ValueError, match="X: has 1 columns of texts, fit had 2; give as many"):
        model.predict(topics["text"])
    first = model.model_
    model.fit(pairs, topics["label"])
    assert model.model_ != first and len(model.classes_) == 3


def test_an_encoder_is_adapted_first_where_the_minutes_are_enough(data, topics, tmp_path, capsys):
    folder, recipe = saved(tmp_path / "encoder", BertModel, topics["text"].tolist()), small_recipe()
    whole = adapted(recipe, folder, train_rows=60)
    minutes = recipe_tokens(whole) * 6 * counted_parameters(whole.start, vocabulary=0) / CPU_FLOPS_PER_S / 60
    made = []
    for share in (1.01, 0.97):  # without stage one it takes 95 % of the tokens
        model = TLMClassifier(corpus="texts", start=folder, recipe=recipe, minutes=share * minutes)
        made.append(model._recipe(small_flow(data, tmp_path), "topics"))
    assert made[0] == whole.settled(gpu=False) and made[1].stage_one is None
    assert "too few to adapt the encoder, so it is fine-tuned alone" in " ".join(capsys.readouterr().out.split())


def test_a_part_shortens_the_fine_tuning_and_says_so(data, topics, tmp_path, capsys):
    folder = saved(tmp_path / "encoder", BertModel, topics["text"].tolist())
    recipe = TLMClassifier(start=folder, part=0.4)._recipe(small_flow(data, tmp_path), "topics")
    assert recipe.stage_one is None and recipe.stage_two.steps == 400
    assert "stage two: 400 steps instead of 1,000" in capsys.readouterr().out


@pytest.mark.usefixtures("ray_cluster", "alone")
def test_a_classifier_can_keep_some_layers_of_its_encoder(data, topics, tmp_path):
    folder = saved(tmp_path / "encoder", BertModel, topics["text"].tolist())
    model = TLMClassifier(start=folder, layers=1, recipe=small_recipe(), root=str(tmp_path / "tlm"), verbose=False)
    recipe = model._recipe(small_flow(data, tmp_path), "topics")
    assert recipe.start == Trimmed(folder, 1) and recipe.stage_one is None
    assert model.fit(topics).predict(topics["text"]).shape == (len(topics),)
    with pytest.raises(ValueError, match="start with 2 layers: these are more than the encoder's 1; give fewer"):
        TLMClassifier(start=folder, layers=2, root=str(tmp_path / "tlm"), verbose=False).fit(topics)
    with pytest.raises(ValueError, match="layers 2: are those of a pretrained encoder; give start, too"):
        TLMClassifier(layers=2).fit(topics)
    with pytest.raises(ValueError, match="layers 0: must be a whole number of 1 or more"):
        TLMClassifier(start=folder, layers=0).fit(topics)


@pytest.mark.usefixtures("ray_cluster", "alone")
def test_marks_are_read_and_a_saved_model_reads_them_too(data, topics, tmp_path):
    words = [text.split() for text in topics["text"]]
    texts = [f"[[ {w[0]} ]] {w[1]} << {w[2]} >> {w[3]}" for w in words]
    how = {"corpus": str(data / "corpus"), "recipe": small_recipe(), "root": str(tmp_path / "tlm"), "verbose": False}
    model, without = (TLMClassifier(**how, marks=marks).fit(texts, topics["label"]) for marks in (True, False))
    model.save(str(tmp_path / "kept"))
    assert json.loads((tmp_path / "kept" / "config.json").read_text())["marks"]
    opened, tokenizer = (
        kind.from_pretrained(tmp_path / "kept", trust_remote_code=True)
        for kind in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    with torch.no_grad():
        logits = opened.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    found = TLMClassifier.load(str(tmp_path / "kept")).predict_proba(texts)
    np.testing.assert_allclose(found, logits.softmax(dim=-1), rtol=1e-4, atol=1e-5)
    assert not np.allclose(found, without.predict_proba(texts), atol=1e-3)
    assert "marks=True" in model.card_ and "trust_remote_code=True" in model.card_


def test_an_encoder_that_reads_marks_is_fine_tuned_alone(data, tmp_path, capsys):
    folder, signs = saved(tmp_path / "encoder", BertModel, ["[[ << a >> ]]"]), ("<<", ">>", "[[", "]]")
    model = TLMClassifier(corpus="texts", start=folder, recipe=small_recipe(), marks=True)
    made = model._recipe(small_flow(data, tmp_path), "topics", signs)
    assert made.stage_one is None and made.labels == MarkedLabels(smoothing=made.labels.smoothing, marks=signs)
    of_names = TLMClassifier(recipe=small_recipe(objectives=(Spans(),), labels=TextLabels(), start=T5), marks=True)
    with pytest.raises(ValueError, match="marks: the recipe's labels are TextLabels, which read none; leave it out"):
        of_names._recipe(small_flow(data, tmp_path), "topics", signs)
    assert "corpus: left out, because no gain of adapting" in capsys.readouterr().out


@pytest.mark.usefixtures("ray_cluster", "alone")
def test_an_encoder_that_cannot_read_the_rows_is_refused_before_anything_is_made(topics, tmp_path):
    folder = saved(tmp_path / "encoder", BertModel, topics["text"].tolist(), positions=47)
    model = TLMClassifier(start=folder, recipe=small_recipe(), root=str(tmp_path / "tlm"), verbose=False)
    with pytest.raises(ValueError, match="does not read a row of 48 tokens"):
        model.fit(topics)
    assert not list((tmp_path / "tlm").rglob("record.json"))


def test_a_card_hides_credentials_however_long_the_call_is():
    corpus = [f"s3://KEY:WORD{number}@bucket/{'x' * 50}" for number in range(20)]
    said = TLMClassifier(corpus=corpus, seed=3)._called()
    assert said.startswith("TLMClassifier(corpus=['s3://***@bucket/") and said.endswith("], seed=3)")
    assert "WORD" not in said and said.count("bucket") == 20


def test_numbers_and_tuples_may_be_labels_in_their_own_order(tmp_path):
    assert names_of([2, 10]) == ["2", "10"] and names_of(["a", "A"]) == ["class 0", "class 1"]
    assert names_of(["", "x"]) == ["class 0", "class 1"] and names_of([("a", 1), ("b", 2)])[0] == "('a', 1)"
    splits = splits_of(["x"] * 3, np.array([True, False, True]), text="text", label="label")
    assert splits["train"].labels == [True, False, True]


def test_equal_rows_lie_in_one_folder_and_pairs_have_two_columns(tmp_path):
    pairs = pd.DataFrame({"a": [f"one {i}" for i in range(30)], "b": [f"two {i}" for i in range(30)]})
    splits = splits_of(pairs, ["x", "y", "z"] * 10, text="text", label="label")
    folder = write_rows(str(tmp_path), splits, {each: each for each in "xyz"})
    assert write_rows(str(tmp_path), splits, {each: each for each in "xyz"}) == folder
    train = [json.loads(line) for line in (Path(folder) / "train.jsonl").read_text().splitlines()]
    assert list(train[0]) == ["text", "text_pair", "label"] and len(train) == 27
    assert texts_of([("a", "b"), ("c", "d")]) == [["a", "c"], ["b", "d"]]
    assert texts_of(np.array([["a"], ["b"]])) == [["a", "b"]]


def test_a_split_of_the_data_is_heeded():
    rows = {"text": ["a", "b"], "label": ["x", "y"]}
    found = splits_of(
        DatasetDict(train=Dataset.from_dict(rows), validation=Dataset.from_dict(rows)), None, text="text", label="label"
    )
    assert set(found) == {"train", "dev"} and found["dev"].texts == [["a", "b"]]


def of_hub(numbers: list[int]) -> Dataset:
    """Return a dataset whose classes have names; -1 is a row without a label."""
    rows = Dataset.from_dict({"text": [f"text {i}" for i in range(len(numbers))], "label": numbers})
    return rows.cast_column("label", ClassLabel(names=["no", "yes"]))


GOOD, OTHER = ["a text", "another"], ["no", "so"]
MISTAKES = {
    "one text": (("a text", ["x"]), "X 'a text': is one text; give a list of texts"),
    "no texts": (([], []), "X: has no texts; give one at least"),
    "too few labels": ((GOOD, ["x"]), "X and y: 2 texts and 1 labels; give one label per text"),
    "a missing text": ((["a", None], ["x", "y"]), "X, row 1: None is no text; fill it in or take the row out"),
    "NaN as text": ((pd.Series(["a", float("nan")]), ["x", "y"]), "X, row 1: nan is no text; fill it in"),
    "numbers as texts": (([1, 2], ["x", "y"]), "X, row 0: 1 is no text"),
    "a missing label": ((GOOD, ["x", None]), "y, row 1: None is no label; fill it in or take the row out"),
    "NaN as label": ((GOOD, [1.0, float("nan")]), "y, row 1: nan is no label"),
    "labels of two types": ((GOOD, ["x", 1]), r"y: has labels of several types \(int, str\); give all one type"),
    "lists as labels": ((GOOD, [["x"], ["y"]]), r"y, row 0: \['x'\] is no label"),
    "a dict as labels": ((GOOD, {"a": 1}), "y: is a dict; give a list, an array or a series"),
    "a number as labels": ((GOOD, 3), "y: is a int; give a list, an array or a series"),
    "no labels": ((GOOD, None), "y: is missing; give labels, or X as a table with the columns 'text' and 'label'"),
    "no such column": (
        (pd.DataFrame({"said": GOOD, "label": ["x", "y"]}), None),
        "X: has no column 'text', only said",
    ),
    "three columns": ((pd.DataFrame({"a": GOOD, "b": GOOD, "c": GOOD}), ["x", "y"]), r"X: has 3 columns \(a, b, c\)"),
    "a blank text": ((["a", " "], ["x", "y"]), "X, row 1: ' ' is no text"),
    "pandas' NA": ((GOOD, pd.Series(["x", pd.NA], dtype=object)), "y, row 1: <NA> is no label"),
    "too few texts": ((GOOD, ["x", "y"]), "X and y: two classes need 3 different texts or more, of which dev gets one"),
    "numbers": (([f"t {i}" for i in range(90)], [i / 7 for i in range(90)]), "y: has 90 different numbers, such as"),
    "no name for a label": (
        (of_hub([0, 1, -1]), None),
        r"label, row 2: -1 has no name among no, yes; take the row out",
    ),
    "another class in dev": (
        (
            DatasetDict(train=of_hub([0, 1, 0]), validation=Dataset.from_dict({"text": GOOD, "label": ["no", "so"]})),
            None,
        ),
        "y of dev: has 'so', which train has not; give dev rows of two or more classes of train",
    ),
    "no text but numbers": ((sp.csr_matrix(np.eye(2)), ["x", "y"]), "X, row 0: <Compressed"),
    "bytes": ((np.array([b"a", b"b"]), ["x", "y"]), "X, row 0: b'a' is no text"),
    "a set": ((set(GOOD), ["x", "y"]), "X: is a set; give a list"),
    "a column per class": ((GOOD, np.eye(2)), r"y, row 0: \[1.0, 0.0\] is no label"),
    "several columns of labels": (
        (GOOD, pd.DataFrame({"a": [1, 2], "b": [1, 2]})),
        r"y: has 2 columns \(a, b\); give one",
    ),
    "the labels among the texts": (
        (pd.DataFrame({"text": GOOD, "label": ["x", "y"]}), ["x", "y"]),
        r"X: has the labels too, as the column 'label'; give X\['text'\], or leave y out",
    ),
    "swapped": ((["x", "y"] * 2, [f"t {i}" for i in range(4)]), "y has a class per row, so X and y may be swapped"),
    "a dict of columns": (({"text": GOOD, "label": ["x", "y"]}, None), "X: is a dict of text, label; give a table"),
    "test alone": (({"test": [GOOD]}, None), "X: is a dict of test; give a table, or tables by split, train among"),
    "one class": ((GOOD, ["x", "x"]), "y: has one class only, 'x'; classification needs two or more"),
}


def test_a_ray_that_fit_starts_prints_no_lines_of_workers_and_has_no_dashboard(tmp_path, monkeypatch):
    asked = {}

    def start(**options):
        asked.update(options)
        raise InterruptedError("after the start")

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", start)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(InterruptedError):
        TLMClassifier(root=str(tmp_path / "tlm"), verbose=False).fit([f"text {n}" for n in range(6)], ["x", "y"] * 3)
    assert asked["include_dashboard"] is asked["log_to_driver"] is False


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_line_with_the_fix(name, tmp_path):
    (texts, labels), said = MISTAKES[name]
    with pytest.raises(ValueError, match=said) as caught:
        TLMClassifier(root=str(tmp_path)).fit(texts, labels)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_a_saved_model_is_needed_to_load_one(tmp_path):
    with pytest.raises(ValueError, match=r"has no classes.json; give one that `save` wrote"):
        TLMClassifier.load(str(tmp_path))


def test_labels_may_be_a_column_of_a_table():
    found = splits_of(["a", "b"], pd.DataFrame({"y": ["x", "y"]}), text="text", label="label")
    assert found["train"].labels == ["x", "y"]


def test_a_generator_and_a_series_with_another_index_are_lists():
    series = pd.Series(GOOD, index=[7, 3])
    assert texts_of(series) == texts_of(each for each in GOOD) == [GOOD]
    assert splits_of(series, pd.Series(["x", "y"], index=[0, 9]), text="t", label="l")["train"].labels == ["x", "y"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"metric": "pearson_spearman"}, "metric 'pearson_spearman': is for numbers; give one of classes"),
        (
            {"recipe": small_recipe(one_stage=True)},
            "recipe: has one_stage or tasks; a classifier is the stage two",
        ),
        ({"recipe": "mini"}, "recipe: is a str; give a Recipe; the name of a recipe is scale="),
        ({"execution": 4}, "execution: is a int; give a Execution"),
        ({"scale": "huge"}, "scale 'huge': allowed are tiny, mini, midi"),
        ({"metric": "f1"}, "metric 'f1': allowed are macro_f1"),
        ({"root": ""}, "root '': must be a folder or URI"),
        ({"seed": None}, "seed None: must be a whole number of 0 or more"),
        ({"seed": -1}, "seed -1: must be a whole number of 0 or more"),
        ({"minutes": "10"}, "minutes '10': must be a number above 0"),
        ({"minutes": 0}, "minutes 0: must be a number above 0"),
        ({"part": 1}, "part 1: must be a number above 0 and below 1"),
        ({"part": "0.3"}, "part '0.3': must be a number above 0 and below 1"),
        ({"part": 0.5, "minutes": 3}, "minutes 3, part 0.5: each sets the budget; give one of them"),
        ({"marks": "[["}, r"marks '\[\[': must be True or False"),
        (
            {"marks": True},
            r"marks: the texts do not mark two spans each by two kinds of brackets, such as \[\[ this \]\]",
        ),
        ({"start": 7}, "start 7: must be the folder or hub name of an encoder"),
        ({"text": "label"}, "text and label: are both 'label'; name two columns"),
        (
            {"corpus": "nowhere"},
            "corpus, location '.*nowhere': no such file; .*; texts in memory go in as a Ray Dataset",
        ),
        ({"corpus": GOOD}, "corpus, location '.*a text': no such file; .*; texts in memory go in as a Ray Dataset"),
        ({"corpus": pd.Series(GOOD)}, "corpus: is a Series; give a folder, file or URI; texts in memory go in as"),
        ({"corpus": 3}, "corpus: is a int; give a folder, file or URI"),
    ],
)
def test_arguments_that_a_classifier_cannot_have_are_refused_before_any_work(arguments, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        TLMClassifier(**{"root": str(tmp_path)} | arguments).fit([f"text {i}" for i in range(6)], ["x", "y"] * 3)
    assert list(tmp_path.iterdir()) == []


def test_it_is_no_use_before_it_is_fitted_and_keeps_no_labels_that_json_cannot_hold(tmp_path):
    with pytest.raises(NotFittedError, match="call fit first"):
        TLMClassifier().predict(GOOD)
    made = TLMClassifier()
    made.model_ = "folder"
    made.classes_ = np.array([None, None], object)
    made.classes_[:] = [("a",), ("b",)]
    with pytest.raises(ValueError, match=r"label \('a',\): is a tuple; save takes texts and numbers"):
        made.save(str(tmp_path / "kept"))
    assert json.loads(json.dumps(TLMClassifier(minutes=3).get_params()))["minutes"] == 3
