"""Predictions on files of every kind: what transformers alone predicts, in the order of the input, continued."""

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from test_jobs import alone
from topic_tasks import linear_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BloomConfig,
    GPT2Config,
    RobertaConfig,
    XLNetConfig,
)

from tlm_ray import storage
from tlm_ray.evaluation.pooling import pooled
from tlm_ray.evaluation.predictions import shares
from tlm_ray.training.scoring import inference, predictor
from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.inference import Predictions, predict_texts
from tlm_ray.training.scoring.predictor import Classifier, Predictor
from tlm_ray.training.tokens.tokenizer import train_wordpiece

TEXTS = [f"row {i} speaks of {'tide ' * (i % 9)}and comet {i % 13}" for i in range(200)]


def make_model(folder: Path, seed: int = 0, **changes) -> str:
    train_wordpiece(TEXTS, vocabulary=200).save_pretrained(folder)
    torch.manual_seed(seed)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    names = {"id2label": {0: "sea", 1: "sky", 2: "kitchen"}, "label2id": {"sea": 0, "sky": 1, "kitchen": 2}}
    options = size | names | changes
    config = BertConfig(vocab_size=200, max_position_embeddings=64, initializer_range=0.3, **options)
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(model) -> np.ndarray:
    """The probabilities of TEXTS by a process that has transformers alone."""
    return alone(model, TEXTS)


def write(folder: Path, kind: str, table: pa.Table) -> str:
    folder.mkdir()
    for part, start in enumerate(range(0, len(table), 80)):
        some, uri = table.slice(start, 80), str(folder / f"part-{part}.{kind}")
        if kind == "parquet":
            pq.write_table(some, uri)
        elif kind == "csv":
            pacsv.write_csv(some, uri)
        else:
            Path(uri).write_text("".join(json.dumps(row) + "\n" for row in some.to_pylist()))
    return str(folder)


def read(out: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in sorted(out.glob("*.parquet")))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_files_of_every_kind_get_what_transformers_alone_predicts(model, expected, tmp_path, kind):
    texts = write(tmp_path / "in", kind, pa.table({"number": range(len(TEXTS)), "text": TEXTS}))
    facts = predict_texts(model, texts, str(tmp_path / "out"), columns=["text"], workers=2)
    found = read(tmp_path / "out")
    assert facts["rows"] == len(found) == len(TEXTS)
    assert list(map(int, found["number"].to_pylist())) == list(range(len(TEXTS)))  # CSV is read as text
    assert found["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(found["probabilities"].to_pylist(), expected, rtol=1e-4, atol=1e-6)
    assert len(set(found["predicted"].to_pylist())) > 1
    assert found["predicted"].to_pylist() == [("sea", "sky", "kitchen")[best] for best in expected.argmax(axis=1)]


@pytest.mark.usefixtures("alone")
def test_pairs_and_nulls(model, tmp_path):
    one, two = [*TEXTS[:9], None, "text"], [*TEXTS[20:30], None]
    texts = write(tmp_path / "in", "parquet", pa.table({"a": one, "b": two}))
    predict_texts(model, texts, str(tmp_path / "out"), columns=["a", "b"], workers=1)
    found = read(tmp_path / "out")
    assert found["predicted"].to_pylist()[9:] == found["probabilities"].to_pylist()[9:] == [None, None]
    pairs = AutoTokenizer.from_pretrained(model)(one[:9], two[:9], padding=True, return_tensors="pt")
    with torch.inference_mode():
        classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
        expected = classifier(**pairs).logits.softmax(-1).numpy()
    np.testing.assert_allclose(found["probabilities"].to_pylist()[:9], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("alone")
def test_predictions_are_csv_too_with_the_probability_of_the_class(model, expected, tmp_path):
    texts = write(tmp_path / "in", "parquet", pa.table({"text": [*TEXTS, None]}))
    predict_texts(model, texts, str(tmp_path / "out"), columns=["text"], workers=1)
    Predictions(str(tmp_path / "out")).write_csv(str(tmp_path / "out.csv"))
    rows = pacsv.read_csv(tmp_path / "out.csv")
    assert rows.column_names == ["text", "predicted", "probability"] and len(rows) == len(TEXTS) + 1
    np.testing.assert_allclose(rows["probability"].to_pylist()[:-1], expected.max(axis=1), rtol=1e-4)
    assert rows["predicted"].to_pylist()[:-1] == read(tmp_path / "out")["predicted"].to_pylist()[:-1]
    lists = pa.table({"text": TEXTS[:3], "tags": [["a"], ["b"], []]})
    predict_texts(
        model, write(tmp_path / "lists", "parquet", lists), str(tmp_path / "two"), columns=["text"], workers=1
    )
    with pytest.raises(ValueError, match=r"csv .*/two.csv': .*; leave out --csv, the predictions are Parquet"):
        Predictions(str(tmp_path / "two")).write_csv(str(tmp_path / "two.csv"))
    assert not (tmp_path / "two.csv").exists()
    taken = write(tmp_path / "taken", "parquet", pa.table({"text": TEXTS[:3], "probability": [1.0, 2.0, 3.0]}))
    predict_texts(model, taken, str(tmp_path / "three"), columns=["text"], workers=1)
    with pytest.raises(ValueError, match="the texts have a column 'probability' already"):
        Predictions(str(tmp_path / "three")).write_csv(str(tmp_path / "three.csv"))
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none has no rows"):
        Predictions(str(tmp_path / "none")).write_csv(str(tmp_path / "none.csv"))


def test_a_few_texts_are_printed_without_ray(model, expected, capsys):
    script = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "predict.py"))
    options = script["Predict"](model=[model], text=TEXTS[:3])
    script["show"](options)
    names = ("sea", "sky", "kitchen")
    said = [f"{names[row.argmax()]} {row.max():.1%}: {text}" for row, text in zip(expected, TEXTS[:3], strict=False)]
    assert capsys.readouterr().out.splitlines() == said
    script["show"](script["Predict"](model=[model], text=TEXTS[:2], pair=TEXTS[2:4]))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_small_file_is_predicted_without_ray(model, expected, tmp_path, monkeypatch):
    script = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "predict.py"))
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("starts Ray"))
    texts = write(tmp_path / "in", "csv", pa.table({"text": TEXTS}))
    options = script["Predict"](model=[model], texts=texts, out=str(tmp_path / "out"))
    script["write"](options)
    np.testing.assert_allclose(read(tmp_path / "out")["probabilities"].to_pylist(), expected, rtol=1e-4, atol=1e-5)
    assert script["is_small"](options) and not script["is_small"](replace(options, workers=2))
    monkeypatch.setitem(script["is_small"].__globals__, "SMALL_BYTES", 100)
    assert not script["is_small"](options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "--texts and --text: give one of them"),
        ({"texts": "a", "text": ["b"], "out": "c"}, "--texts and --text: give one of them"),
        ({"texts": "a"}, "--out: the folder for the predictions of --texts; give both"),
        ({"text": ["a"], "csv": "b"}, "--csv b: is written for --texts; --text prints"),
        ({"text": ["a"], "pair": ["b", "c"]}, "--pair: 2 second texts for 1 --text; give one for each"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, said):
    script = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "predict.py"))
    with pytest.raises(ValueError, match=said):
        script["Predict"](model=["model"], **options)


@pytest.mark.usefixtures("alone")
def test_a_run_goes_on_with_the_chunks_that_are_missing_and_no_others(model, tmp_path):
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    out = tmp_path / "out"
    predict_texts(model, texts, str(out), columns=["text"], workers=2)
    whole, (first, second, third) = read(out), sorted(out.glob("*.parquet"))
    second.unlink()
    before = {file: file.stat().st_mtime_ns for file in (first, third)}
    assert predict_texts(model, texts, str(out), columns=["text"], workers=1)["rows"] == len(TEXTS)
    assert read(out).equals(whole) and before == {file: file.stat().st_mtime_ns for file in before}
    with pytest.raises(ValueError, match="of another model, other texts or another precision; give"):
        predict_texts(make_model(tmp_path / "other", seed=1), texts, str(out), columns=["text"], workers=1)
    changed = Path(texts) / "part-1.parquet"
    content, size = changed.read_bytes(), changed.stat().st_size
    changed.write_bytes(content.replace(b"comet", b"tides"))
    assert changed.stat().st_size == size
    with pytest.raises(ValueError, match="of another model, other texts or another precision; give"):
        predict_texts(model, texts, str(out), columns=["text"], workers=1)


def test_chunks_are_cut_from_a_large_file(model, tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "CHUNK_BATCHES", 1)
    texts = write(tmp_path / "in", "jsonl", pa.table({"text": TEXTS[:3] * 10}))
    monkeypatch.setattr("tlm_ray.corpus.general.documents.BATCH_ROWS", 8)
    (file,) = Path(texts).iterdir()
    (tmp_path / "out").mkdir()
    worker = inference.FilePredictor([model], str(tmp_path / "out"), ["text"])
    assert worker({"file": str(file), "number": 0}) == {"rows": 30}
    assert len(list((tmp_path / "out").glob("part-00000-*.parquet"))) == 4
    assert read(tmp_path / "out")["text"].to_pylist() == TEXTS[:3] * 10


def test_columns_of_jsonl_may_have_other_types_from_batch_to_batch_or_be_absent(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tlm_ray.corpus.general.documents.BATCH_ROWS", 2)
    rows = [{"n": 1, "text": TEXTS[0]}, {"n": None, "text": TEXTS[1]}, {"text": TEXTS[2], "n": 2.5}, {"text": TEXTS[3]}]
    file = tmp_path / "in.jsonl"
    (tmp_path / "out").mkdir()
    worker = inference.FilePredictor([model], str(tmp_path / "out"), ["text"])
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": TEXTS[4]}]))
    worker({"file": str(file), "number": 0})
    found = read(tmp_path / "out")
    assert found["n"].to_pylist() == [1.0, None, 2.5, None, None] and found["text"].to_pylist() == TEXTS[:5]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": TEXTS[4], "n": "many"}]))
    with pytest.raises(ValueError, match=rf"file '{file}': .*; make each column's values of one type"):
        worker({"file": str(file), "number": 1})


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(n_embd=32, n_layer=1, n_head=2, n_positions=64, vocab_size=200, pad_token_id=0, num_labels=3),
        RobertaConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=200,
            max_position_embeddings=66, type_vocab_size=1, pad_token_id=0, num_labels=3,
        ),
    ],
    ids=["gpt2", "roberta"],
)  # fmt: skip
def test_a_model_without_token_types_gets_none_as_in_training(tmp_path, config):
    tokenizer = train_wordpiece(TEXTS, vocabulary=200)
    tokenizer.save_pretrained(tmp_path)
    config.initializer_range = 0.3
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    pairs = [TEXTS[:9], TEXTS[20:29]]
    inputs = tokenizer(*pairs, padding=True, return_tensors="pt")
    with torch.inference_mode():
        trained = open_classifier(str(tmp_path), labels=("a", "b", "c"), device="cpu")
        expected = trained.eval().scores(dict(inputs)).numpy()
    found = Classifier.open(str(tmp_path), "cpu", "fp32").logits(pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "width"), [(XLNetConfig, {"d_model": 16, "d_head": 8, "d_inner": 16}), (BloomConfig, {"hidden_size": 16})]
)
def test_a_model_without_a_limit_of_positions_reads_all_of_a_text(tmp_path, kind, width):
    train_wordpiece(TEXTS, vocabulary=200).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("model_max_length")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = kind(vocab_size=200, pad_token_id=0, n_head=2, n_layer=1, num_labels=2, **width)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    long = "tide comet " * 600
    found = Predictor(str(tmp_path))(pa.table({"text": [long, TEXTS[0]]}))
    inputs = AutoTokenizer.from_pretrained(tmp_path)([long], return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        whole = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()(**inputs)
    np.testing.assert_allclose(found["probabilities"][0].as_py(), whole.logits[0].softmax(0), rtol=1e-4)


def test_a_model_of_one_label_predicts_numbers(tmp_path):
    one = make_model(tmp_path / "model", id2label={0: "score"}, label2id={"score": 0})
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS[:9]}))
    (tmp_path / "out").mkdir()
    inference.FilePredictor([one], str(tmp_path / "out"), ["text"])({"file": f"{texts}/part-0.parquet", "number": 0})
    numbers = read(tmp_path / "out")["predicted"].to_numpy()
    assert len(set(numbers)) == 9 and "probabilities" not in read(tmp_path / "out").column_names


def test_a_model_that_cannot_be_used_is_named_before_any_work(tmp_path):
    texts, out = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS})), str(tmp_path / "out")
    with pytest.raises(ValueError, match=r"model '.*/mistyped': transformers cannot open it .*; give a trained"):
        predict_texts(f"{tmp_path}/mistyped", texts, out, columns=["text"], workers=1)
    several = make_model(tmp_path / "several", problem_type="multi_label_classification")
    with pytest.raises(ValueError, match="gives a text any number of labels"):
        predict_texts(several, texts, out, columns=["text"], workers=1)
    assert not Path(out).exists()


def test_what_is_wrong_is_said_before_any_work(model, tmp_path):
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS, "predicted": TEXTS}))
    with pytest.raises(ValueError, match="has no column 'body'; its columns are text, predicted; choose one of them"):
        predict_texts(model, texts, str(tmp_path / "out"), columns=["body"], workers=1)
    with pytest.raises(ValueError, match="has a column 'predicted' already"):
        predict_texts(model, texts, str(tmp_path / "out"), columns=["text"], workers=1)
    fine = write(tmp_path / "fine", "parquet", pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match=r"out '.*': holds other files; give another folder"):
        predict_texts(model, fine, texts, columns=["text"], workers=1)
    assert not (tmp_path / "out").exists()


def probabilities_of_transformers(model: str, texts: list[str]) -> np.ndarray:
    """Return probabilities of one batch; what a process gives that has nothing else is tested by `expected`."""
    return shares(logits_of_transformers(model, texts, torch.float32))


def logits_of_transformers(model: str, texts: list[str], dtype: torch.dtype) -> np.ndarray:
    """Return the logits of one batch, the shortest text first as here."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
    order = np.argsort([len(text) for text in texts], kind="stable")
    inputs = tokenizer([texts[row] for row in order], padding=True, return_tensors="pt")
    with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return classifier(**inputs).logits.float().numpy()[np.argsort(order)]


@pytest.mark.parametrize(
    ("trained", "asked", "dtype"),
    [
        ({}, "auto", torch.float32),
        ({"trained_precision": "fp32"}, "auto", torch.float32),
        ({"trained_precision": "bf16"}, "auto", torch.bfloat16),
        ({"trained_precision": "bf16"}, "fp32", torch.float32),
        ({}, "bf16", torch.bfloat16),
    ],
)
def test_a_model_predicts_in_the_precision_of_its_training_or_the_one_asked(tmp_path, trained, asked, dtype):
    model, texts = make_model(tmp_path / "model", **trained), TEXTS[:40]
    found = predictor.Classifier.open(model, "cpu", asked).logits([texts])
    other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
    assert np.array_equal(found, logits_of_transformers(model, texts, dtype))
    assert not np.allclose(found, logits_of_transformers(model, texts, other), rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp16", ""])
def test_an_unknown_precision_lists_the_known_ones(model, tmp_path, precision):
    texts, out = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS})), tmp_path / "out"
    with pytest.raises(ValueError, match=f"precision '{precision}': allowed are auto, fp32, bf16"):
        predict_texts(model, texts, str(out), columns=["text"], workers=1, precision=precision)
    odd = make_model(tmp_path / "odd", trained_precision="int8")
    with pytest.raises(ValueError, match=r"config.json says trained_precision 'int8'; give precision fp32 or bf16"):
        predict_texts(odd, texts, str(out), columns=["text"], workers=1)
    assert not out.exists()


def test_predictions_of_another_precision_are_not_gone_on_with(model, tmp_path, monkeypatch):
    monkeypatch.setattr(inference.parallel, "each", lambda *_, **__: [])
    texts, out = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS[:3]})), str(tmp_path / "out")
    for _ in range(2):
        predict_texts(model, texts, out, columns=["text"], workers=1)
    with pytest.raises(ValueError, match="of another model, other texts or another precision; give another folder"):
        predict_texts(model, texts, out, columns=["text"], workers=1, precision="bf16")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_dataset_gets_the_predictions_of_its_texts_as_files(model, tmp_path):
    import ray.data

    table, out = pa.table({"number": range(len(TEXTS)), "text": [None, *TEXTS[1:]]}), str(tmp_path / "out")
    predict_texts([model], write(tmp_path / "in", "parquet", table), out, columns=["text"], workers=1)
    expected = read(tmp_path / "out")
    of_files = inference.Predictions(out).dataset().iter_batches(batch_format="pyarrow", batch_size=None)
    assert pa.concat_tables(of_files).equals(expected)
    dataset = ray.data.from_arrow(table)
    for how in ({"fn": Predictor(model)}, {"fn": Predictor, "fn_constructor_args": [model], "concurrency": 1}):
        made = dataset.map_batches(**how, batch_format="pyarrow", batch_size=None)
        found = pa.Table.from_pylist(sorted(made.take_all(), key=lambda row: row["number"]))
        assert found.drop("probabilities").equals(expected.drop("probabilities"))
        for one, other in zip(found["probabilities"].to_pylist(), expected["probabilities"].to_pylist(), strict=True):
            assert (one is None) == (other is None) and (one is None or np.allclose(one, other, rtol=1e-4, atol=1e-6))


@pytest.mark.usefixtures("alone")
def test_workers_in_another_folder_open_the_model_of_the_script(model, tmp_path, monkeypatch):
    table = pa.table({"text": TEXTS[:5]})
    texts, expected = write(tmp_path / "in", "parquet", table), Predictor(model)(table)
    make_model(tmp_path / "model", seed=1)

    class Elsewhere(inference.FilePredictor):
        def __init__(self, *arguments):
            monkeypatch.chdir(tmp_path)
            super().__init__(*arguments)

    monkeypatch.setattr(inference, "FilePredictor", Elsewhere)
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    storage.copy_folder(model, "model")
    predictor = Predictor("model")
    predict_texts("model", texts, "out", columns=["text"], workers=1)
    assert Path.cwd() == tmp_path
    assert read(tmp_path / "own" / "out").equals(expected) and predictor(table).equals(expected)


def test_a_predictor_names_what_is_wrong(model, tmp_path):
    with pytest.raises(ValueError, match=r"model '.*/mistyped': transformers cannot open it .*; give a trained"):
        Predictor(f"{tmp_path}/mistyped")
    predictor = Predictor(model, column="body")
    with pytest.raises(ValueError, match="the Dataset has no column 'body'; its columns are text; choose one of them"):
        predictor(pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match='batch: is a dict; give map_batches batch_format="pyarrow"'):
        predictor({"body": np.array(TEXTS)})


@pytest.mark.usefixtures("alone")
def test_several_models_predict_by_their_mean_probabilities(model, expected, tmp_path):
    other = make_model(tmp_path / "other", seed=1)
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    predict_texts([model, other], texts, str(tmp_path / "out"), columns=["text"], workers=1)
    found = read(tmp_path / "out")
    mean = (expected + probabilities_of_transformers(other, TEXTS)) / 2
    np.testing.assert_allclose(found["probabilities"].to_pylist(), mean, rtol=1e-4, atol=1e-6)
    assert found["predicted"].to_pylist() == [("sea", "sky", "kitchen")[best] for best in mean.argmax(axis=1)]
    with pytest.raises(ValueError, match="holds predictions of another model"):
        predict_texts([other, model], texts, str(tmp_path / "out"), columns=["text"], workers=1)


@pytest.mark.usefixtures("alone")
def test_a_linear_model_and_all_encoders_together_are_pooled_by_the_share_that_it_keeps(model, expected, tmp_path):
    other = make_model(tmp_path / "other", seed=1)
    weights = np.array([[2.0, -1.0], [0.0, 0.5], [-1.0, 1.0]])
    linear = replace(linear_model(["fish", "pan"], weights, ("sea", "sky", "kitchen")), encoders_share=0.7)
    linear.save(str(tmp_path / "linear"))
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    predict_texts([str(tmp_path / "linear"), model, other], texts, str(tmp_path / "out"), columns=["text"], workers=1)
    pool = pooled((expected + probabilities_of_transformers(other, TEXTS)) / 2, shares(linear.logits(TEXTS)), 0.7)
    np.testing.assert_allclose(read(tmp_path / "out")["probabilities"].to_pylist(), pool, rtol=1e-4, atol=1e-6)
    predict_texts(str(tmp_path / "linear"), texts, str(tmp_path / "one"), columns=["text"], workers=1)
    best = linear.logits(TEXTS).argmax(axis=1)
    assert read(tmp_path / "one")["predicted"].to_pylist() == [linear.labels[row] for row in best]


@pytest.mark.usefixtures("alone")
def test_texts_that_are_all_null_get_nothing_from_a_linear_model(tmp_path):
    linear_model(["fish"], np.ones((1, 1)), ("no", "yes")).save(str(tmp_path / "linear"))
    texts = write(tmp_path / "in", "parquet", pa.table({"text": pa.array([None, None], pa.string())}))
    predict_texts(str(tmp_path / "linear"), texts, str(tmp_path / "out"), columns=["text"], workers=1)
    assert read(tmp_path / "out")["predicted"].to_pylist() == [None, None]


def test_classes_are_named_by_their_numbers_whatever_their_order_in_the_file():
    names = {10: "k", 2: "c", 0: "a", 1: "b"}
    assert predictor._names(BertConfig(id2label=names, label2id={})) == ["a", "b", "c", "k"]


def test_models_of_other_labels_do_not_predict_together(model, tmp_path):
    renamed = make_model(tmp_path / "model", id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match=r"has the labels \['a', 'b', 'c'\], but .* has \['sea', 'sky', 'kitchen'\]"):
        predict_texts([model, renamed], texts, str(tmp_path / "out"), columns=["text"], workers=1)


def test_models_of_other_precisions_need_one_that_is_given(model, tmp_path):
    other = make_model(tmp_path / "model", seed=1, trained_precision="bf16")
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match=r"was trained in bf16, but .* in fp32; give precision fp32 or bf16"):
        predict_texts([model, other], texts, str(tmp_path / "out"), columns=["text"], workers=1)


@pytest.mark.usefixtures("alone")
def test_predictions_go_on_with_other_credentials_and_no_file_holds_any(model, tmp_path, s3_query):
    there, out = f"bucket-of-rows/in{s3_query}", tmp_path / "out"
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    storage.copy_folder(texts, f"s3://KEY:SECRET@{there}")
    for key in ("KEY:SECRET", "NEW:ROTATED"):
        predict_texts(model, f"s3://{key}@{there}", str(out), columns=["text"], workers=1)
    assert not any(b"SECRET" in file.read_bytes() or b"ROTATED" in file.read_bytes() for file in out.iterdir())
    note = out / inference.RECORD
    note.write_text(note.read_text().replace("s3://", "s3://KEY:SECRET@"))  # as versions before this one did
    predict_texts(model, f"s3://NEW:ROTATED@{there}", str(out), columns=["text"], workers=1)
    assert "SECRET" not in note.read_text()


FORKED = """
import multiprocessing, sys
import numpy as np, pyarrow as pa, torch
from tlm_ray import Predictor
torch.set_num_threads(2)
rows, predict = pa.table({"text": [f"text {i}" for i in range(70)]}), Predictor(sys.argv[1])
expected = predict(rows)["probabilities"].to_pylist()  # torch has started its threads, which a fork does not have
with multiprocessing.get_context("fork").Pool(1) as pool:
    found = pool.apply_async(predict, (rows,)).get(120)["probabilities"].to_pylist()
np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
print("equal")
"""


def test_a_forked_process_predicts_too(model):
    done = subprocess.run([sys.executable, "-c", FORKED, model], capture_output=True, text=True, timeout=300)
    assert done.stdout == "equal\n", done.stderr
