"""Predictions on files of every kind: what transformers alone predicts, in the order of the input, continued."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from test_jobs import alone
from transformers import BertConfig, BertForSequenceClassification

from tlm_ray.training import inference
from tlm_ray.training.inference import predict_texts
from tlm_ray.training.tokenizer import train_wordpiece

TEXTS = [f"row {i} speaks of {'tide ' * (i % 9)}and comet {i % 13}" for i in range(200)]


def make_model(folder: Path, seed: int = 0) -> str:
    train_wordpiece(TEXTS, vocabulary=200).save_pretrained(folder)
    torch.manual_seed(seed)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    names = {"id2label": {0: "sea", 1: "sky", 2: "kitchen"}, "label2id": {"sea": 0, "sky": 1, "kitchen": 2}}
    config = BertConfig(vocab_size=200, max_position_embeddings=64, initializer_range=0.3, **size, **names)
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


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


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_files_of_every_kind_get_what_transformers_alone_predicts(model, tmp_path, kind):
    texts = write(tmp_path / "in", kind, pa.table({"number": range(len(TEXTS)), "text": TEXTS}))
    facts = predict_texts(model, texts, str(tmp_path / "out"), columns=["text"], workers=2)
    found, expected = read(tmp_path / "out"), alone(model, TEXTS)
    assert facts["rows"] == len(found) == len(TEXTS)
    assert list(map(int, found["number"].to_pylist())) == list(range(len(TEXTS)))  # CSV is read as text
    assert found["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(found["probabilities"].to_pylist(), expected, rtol=1e-4, atol=1e-6)
    assert len(set(found["predicted"].to_pylist())) > 1
    assert found["predicted"].to_pylist() == [("sea", "sky", "kitchen")[best] for best in expected.argmax(axis=1)]


@pytest.mark.usefixtures("ray_cluster")
def test_pairs_and_nulls(model, tmp_path):
    one, two = [*TEXTS[:9], None, "text"], [*TEXTS[20:30], None]
    texts = write(tmp_path / "in", "parquet", pa.table({"a": one, "b": two}))
    predict_texts(model, texts, str(tmp_path / "out"), columns=["a", "b"], workers=1)
    found = read(tmp_path / "out")
    assert found["predicted"].to_pylist()[9:] == found["probabilities"].to_pylist()[9:] == [None, None]
    expected = alone(model, one[:9], two[:9])
    np.testing.assert_allclose(found["probabilities"].to_pylist()[:9], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("ray_cluster")
def test_a_run_goes_on_with_the_chunks_that_are_missing_and_no_others(model, tmp_path):
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS}))
    out = tmp_path / "out"
    predict_texts(model, texts, str(out), columns=["text"], workers=2)
    whole, (first, second, third) = read(out), sorted(out.glob("*.parquet"))
    second.unlink()
    before = {file: file.stat().st_mtime_ns for file in (first, third)}
    assert predict_texts(model, texts, str(out), columns=["text"], workers=1)["rows"] == len(TEXTS)
    assert read(out).equals(whole) and before == {file: file.stat().st_mtime_ns for file in before}
    with pytest.raises(ValueError, match="of another model or other texts; give another folder"):
        predict_texts(make_model(tmp_path / "other", seed=1), texts, str(out), columns=["text"], workers=1)


def test_chunks_are_cut_from_a_large_file(model, tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "CHUNK_BATCHES", 1)
    texts = write(tmp_path / "in", "jsonl", pa.table({"text": TEXTS[:3] * 10}))
    monkeypatch.setattr("tlm_ray.corpus.documents.BATCH_ROWS", 8)
    (file,) = Path(texts).iterdir()
    (tmp_path / "out").mkdir()
    worker = inference.Predictor(model, str(tmp_path / "out"), ["text"])
    assert worker({"file": str(file), "number": 0}) == {"rows": 30}
    assert len(list((tmp_path / "out").glob("part-00000-*.parquet"))) == 4
    assert read(tmp_path / "out")["text"].to_pylist() == TEXTS[:3] * 10


def test_what_is_wrong_is_said_before_any_work(model, tmp_path):
    texts = write(tmp_path / "in", "parquet", pa.table({"text": TEXTS, "predicted": TEXTS}))
    with pytest.raises(ValueError, match="has no column 'body', only text, predicted; name the right one"):
        predict_texts(model, texts, str(tmp_path / "out"), columns=["body"], workers=1)
    with pytest.raises(ValueError, match="has a column 'predicted' already"):
        predict_texts(model, texts, str(tmp_path / "out"), columns=["text"], workers=1)
    fine = write(tmp_path / "fine", "parquet", pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match=r"out '.*': holds other files; give another folder"):
        predict_texts(model, fine, texts, columns=["text"], workers=1)
    assert not (tmp_path / "out").exists()
