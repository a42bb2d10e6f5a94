"""ONNX: what the file gives is what PyTorch gives, on rows of other numbers and lengths, in a process without it."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_inference import TEXTS, make_model
from test_jobs import alone
from transformers import T5Config, T5ForConditionalGeneration

from tlm_ray.training.scoring import onnx_export
from tlm_ray.training.scoring.onnx_export import export_onnx

PROGRAM = """
import json, sys
import numpy as np, onnxruntime
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json")
tokenizer.enable_padding()
rows = tokenizer.encode_batch(json.load(sys.stdin))
inputs = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
inputs = {name: np.array([getattr(row, kind) for row in rows]) for name, kind in inputs.items()}
logits = onnxruntime.InferenceSession(f"{sys.argv[1]}/model.onnx").run(["logits"], inputs)[0]
assert "torch" not in sys.modules and "transformers" not in sys.modules
print(json.dumps(logits.tolist()))
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_program_without_torch_gets_the_same_probabilities(tmp_path, capsys):
    model, out = make_model(tmp_path / "model"), tmp_path / "out"
    file = tmp_path / "dev.parquet"
    expected = alone(model, TEXTS[:20])
    labels = [("sea", "sky", "kitchen")[best] for best in expected.argmax(axis=1)]
    pq.write_table(pa.table({"text": TEXTS[:20], "label": labels}), file)
    script = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "export.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["export", "--model", model, "--out", str(out), "--texts", str(file), "--int8"])
        script["main"]()
    said = capsys.readouterr()
    assert "model.onnx of" in said.out and "model_int8.onnx of" in said.out and "torchvision" not in said.err
    scores = {line.split("  ")[0].strip(): line.split()[-2] for line in said.out.splitlines()[-3:]}
    assert list(scores) == ["PyTorch", "ONNX", "ONNX, int8"] and scores["PyTorch"] == scores["ONNX"] == "100.00"
    command = [sys.executable, "-c", PROGRAM, str(out)]
    for texts in (TEXTS[:20], ["one"]):
        done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
        logits = np.array(json.loads(done.stdout))
        found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, alone(model, texts), rtol=1e-3, atol=1e-5)
    config = json.loads((out / "config.json").read_text())
    assert config["id2label"] == {"0": "sea", "1": "sky", "2": "kitchen"}
    assert (out / "model_int8.onnx").stat().st_size < (out / "model.onnx").stat().st_size


def test_a_file_that_gives_other_logits_is_not_written(tmp_path, monkeypatch):
    model = make_model(tmp_path / "model")
    monkeypatch.setattr(onnx_export, "_export", lambda *_, **__: None)
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda path: None)
    monkeypatch.setattr(onnx_export, "_by_onnx", lambda session, prepare: lambda texts: np.zeros((len(texts), 3)))
    with pytest.raises(ValueError, match=r"model .*: ONNX gives other logits than PyTorch, by [\d.]+"):
        export_onnx(model, str(tmp_path / "out"), TEXTS[:4])
    assert not (tmp_path / "out").exists()


def test_models_that_have_no_such_file_are_refused(tmp_path):
    size = {"d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "vocab_size": 200}
    folder = make_model(tmp_path / "written")
    T5ForConditionalGeneration(T5Config(**size, label_tokens=[[5, 1]])).config.save_pretrained(folder)
    with pytest.raises(ValueError, match="a decoder writes its labels, one token after another; give an encoder"):
        export_onnx(folder, str(tmp_path / "out"), TEXTS[:2])
    with pytest.raises(ValueError, match="texts: give some to compare on"):
        export_onnx(folder, str(tmp_path / "out"), [])
