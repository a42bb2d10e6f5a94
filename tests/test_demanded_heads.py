"""An encoder without a trained classification head is refused wherever a classifier is asked for."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.inference import predict_texts
from tlm_ray.training.scoring.predictor import Classifier
from tlm_ray.training.tokens.tokenizer import train_wordpiece

LABELS = ("sea", "sky")
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
ROBERTA_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
TEXTS = [f"row {i} speaks of {'tide ' * (i % 9)}and comet {i % 13}" for i in range(20)]
OPENERS = {
    "metrics": lambda folder: open_classifier(folder, labels=LABELS, device="cpu").heads["labels"].model,
    "predict": lambda folder: Classifier.open(folder, "cpu", "fp32").model,
}


def write(folder: Path, kind: str, auto: Any) -> str:
    """Write a small model of random weights with a tokenizer; return its folder."""
    tokenizer = train_wordpiece(TEXTS, vocabulary=120)
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), pad_token_id=0, **SIZE, **ROBERTA_IDS, **names)
    auto.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("name", OPENERS)
def test_an_encoder_without_a_classification_head_is_refused(tmp_path, name, kind):
    for auto in (AutoModelForMaskedLM, AutoModel):
        folder = write(tmp_path / auto.__name__, kind, auto)
        message = (
            rf"^model {re.escape(repr(folder))}: is no trained classifier, its weights lack 'classifier\.[\w.]+'"
            rf"[^\n]*; train it first \(train\.py --start {re.escape(folder)}\)$"
        )
        with pytest.raises(ValueError, match=message):
            OPENERS[name](folder)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("name", OPENERS)
def test_a_classifier_is_opened_with_its_own_head(tmp_path, name, kind):
    folder = write(tmp_path / "classifier", kind, AutoModelForSequenceClassification)
    expected = dict(AutoModelForSequenceClassification.from_pretrained(folder).named_parameters())
    found = {name: p for name, p in OPENERS[name](folder).named_parameters() if name.startswith("classifier.")}
    assert found and all(torch.equal(p, expected[name]) for name, p in found.items())


def test_predictions_refuse_it_before_they_claim_their_folder(tmp_path):
    folder = write(tmp_path / "masked", "bert", AutoModelForMaskedLM)
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "texts.parquet")
    with pytest.raises(ValueError, match=rf"^model '{folder}': is no trained classifier"):
        predict_texts(folder, str(tmp_path / "texts.parquet"), str(tmp_path / "out"), columns=["text"], workers=1)
    assert not (tmp_path / "out").exists()
