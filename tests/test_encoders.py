"""Encoders that are not BERT, tasks that are not classes: trained on Ray Train, opened by transformers alone."""

import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from killing import killed_in_turn
from small import STAGE_ONE, small_flow, small_recipe
from small_data import COMMON, TOPICS, sentences
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertTokenizer,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ModernBertConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
)

from tlm_ray import baseline, storage
from tlm_ray.compute import Compute
from tlm_ray.evaluation.predictions import read_predictions
from tlm_ray.evaluation.scores import score
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.stage import Stage
from tlm_ray.training.encoders.starts import Architecture
from tlm_ray.training.scoring.inference import predict_texts

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture
def roberta(data, tmp_path) -> str:
    """A RoBERTa of random weights with its own kind of tokenizer."""
    texts = pq.read_table(data / "corpus" / "part-0.parquet")["text"].to_pylist()
    pieces = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces.train_from_iterator(texts, vocab_size=400, special_tokens=special, show_progress=False)
    pieces.save_model(str(tmp_path))
    merges = [tuple(line.split()) for line in (tmp_path / "merges.txt").read_text().splitlines()[1:]]
    tokenizer = RobertaTokenizer(vocab=pieces.get_vocab(), merges=merges)
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, initializer_range=0.1, **SIZE)
    RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    tokenizer.save_pretrained(tmp_path / "roberta")
    return str(tmp_path / "roberta")


@pytest.fixture
def similarity(data, tmp_path) -> Path:
    """Pairs of sentences, of one topic or of two, and how near they are: 0 to 5."""
    rng, folder = np.random.default_rng(1), tmp_path / "similarity"
    (folder / "tasks" / "near").mkdir(parents=True)
    (folder / "corpus").symlink_to(data / "corpus")
    for split, count in (("train", 90), ("dev", 30), ("test", 30)):
        topics = [rng.choice(list(TOPICS), 2) for _ in range(count)]
        rows: dict[str, Any] = {
            name: [sentences(rng, str(pair[place]), 1) for pair in topics]
            for place, name in enumerate(("text", "text_pair"))
        }
        rows["label"] = [4.0 + float(rng.random()) if a == b else float(rng.random()) for a, b in topics]
        pq.write_table(pa.table(rows), folder / "tasks" / "near" / f"{split}.parquet")
    return folder


def finish(stage: Stage, root: str) -> dict[str, Any]:
    return make([stage], root)[stage.fingerprint]["facts"]


@pytest.mark.usefixtures("alone")
def test_tlm_on_a_roberta_learns_a_regression_of_pairs(similarity, tmp_path, roberta):
    recipe = baseline(small_recipe(), roberta, "tlm", train_rows=90)
    recipe = replace(recipe, stage_two=recipe.stage_two.of_steps(60))
    flow = replace(small_flow(similarity, tmp_path / "root"), metric="pearson_spearman")
    stage = flow.stages(recipe, "near", 0).metrics
    facts = finish(stage, flow.execution.root)
    second = stage.inputs["stage_two"]
    one, two = (source.folder(flow.execution.root) for source in (second.inputs["stage_one"], second))
    assert AutoModelForMaskedLM.from_pretrained(f"{one}/model").config.model_type == "roberta"
    start, trained = (AutoModelForMaskedLM.from_pretrained(f) for f in (roberta, f"{one}/model"))
    moved = [(a - b).abs().max().item() for a, b in zip(start.parameters(), trained.parameters(), strict=True)]
    assert 0 < max(moved) < 0.1, "training goes on from the checkpoint's weights"

    model = AutoModelForSequenceClassification.from_pretrained(f"{two}/model").eval()
    test = storage.read_table(f"{flow.task('near').folder(flow.execution.root)}/test.arrow")
    texts = [test[name].to_pylist() for name in ("text", "text_pair")]
    options = {"truncation": True, "max_length": 48, "padding": True, "return_tensors": "pt"}
    with torch.inference_mode():
        numbers = model(**AutoTokenizer.from_pretrained(f"{two}/model")(*texts, **options)).logits[:, 0].numpy()
    assert facts["test"] == pytest.approx(score("pearson_spearman", test["label"].to_numpy(), numbers), abs=0.01)

    asked = str(similarity / "tasks" / "near" / "test.parquet")
    predict_texts(f"{two}/model", asked, str(tmp_path / "out"), columns=["text", "text_pair"], workers=1)
    found = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert "probabilities" not in found.column_names
    np.testing.assert_allclose(found["predicted"].to_numpy(), numbers, atol=1e-4)


@pytest.mark.usefixtures("alone")
def test_an_albert_of_pairs_says_the_same_when_it_is_opened_elsewhere(similarity, tmp_path):
    """Its tokenizer returns no token types by itself, and its encoder is trained with them."""
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "\u2581", *"abcdefghijklmnopqrstuvwxyz."]
    pieces += [f"\u2581{word}" for word in chain(*TOPICS.values(), COMMON)]
    tokenizer = AlbertTokenizer(vocab=[(piece, -float(number)) for number, piece in enumerate(pieces)])
    assert "token_type_ids" not in tokenizer.model_input_names
    sizes = SIZE | {"embedding_size": 16, "classifier_dropout_prob": 0.0}
    config = AlbertConfig(vocab_size=len(tokenizer), pad_token_id=0, initializer_range=0.3, **sizes)
    AlbertForMaskedLM(config).save_pretrained(tmp_path / "albert")
    tokenizer.save_pretrained(tmp_path / "albert")
    recipe = baseline(small_recipe(), str(tmp_path / "albert"), "plain", train_rows=90)
    recipe = replace(recipe, stage_two=recipe.stage_two.of_steps(4))
    flow = replace(small_flow(similarity, tmp_path / "root"), metric="pearson_spearman")
    stages, root = flow.stages(recipe, "near", 0), flow.execution.root
    make([stages.metrics], root)
    known = read_predictions(stages.metrics.folder(root), "test").logits[:, 0]

    out = str(tmp_path / "out")
    asked = str(similarity / "tasks" / "near" / "test.parquet")
    predict_texts(f"{stages.stage_two.folder(root)}/model", asked, out, columns=["text", "text_pair"], workers=1)
    found = pq.read_table(next((tmp_path / "out").glob("*.parquet")))["predicted"].to_numpy()
    np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("alone")
def test_any_architecture_is_trained_from_scratch_on_general_text_alone(data, tmp_path):
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id"), 2)
    config = ModernBertConfig(vocab_size=99, max_position_embeddings=64, local_attention=16, **ids, **SIZE)
    config.save_pretrained(tmp_path / "architecture")
    recipe = small_recipe(start=Architecture(str(tmp_path / "architecture")), rho1=None)
    flow = small_flow(data, tmp_path / "root")
    stage = flow.stages(recipe, "topics", 0).stage_two
    finish(stage, flow.execution.root)
    one = stage.inputs["stage_one"]
    history = one.record(flow.execution.root)["facts"]["history"]
    assert all("general_mlm" in entry and "task_mlm" not in entry and "dev" not in entry for entry in history)
    trained = AutoModelForMaskedLM.from_pretrained(f"{one.folder(flow.execution.root)}/model")
    tokenizer = AutoTokenizer.from_pretrained(f"{one.folder(flow.execution.root)}/model")
    assert trained.config.model_type == "modernbert" and trained.config.vocab_size == len(tokenizer)
    assert trained.config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_weights_that_two_workers_share_out_open_as_those_of_one_though_a_worker_is_killed(data, tmp_path):
    opened, recipe = [], small_recipe(stage_one=replace(STAGE_ONE, steps=40, evaluate_every=8))
    trained = shutil.ignore_patterns("stage_one", "stage_two", "metrics")
    for folder, compute in (("one", Compute()), ("two", Compute(workers=2, sharded=True, micro_rows=3))):
        if folder == "two":
            shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=trained)
        flow = small_flow(data, tmp_path / folder, compute=compute, workers=2)
        stages = flow.stages(recipe, "topics", 0)
        victims = ("RayTrainWorker",) if folder == "two" else ()
        with killed_in_turn(Path(stages.stage_one.folder(flow.execution.root)), *victims):
            scores = finish(stages.metrics, flow.execution.root)
        one, two = (stage.folder(flow.execution.root) for stage in (stages.stage_one, stages.stage_two))
        opened.append(AutoModelForMaskedLM.from_pretrained(f"{one}/model").state_dict())
        opened[-1] |= AutoModelForSequenceClassification.from_pretrained(f"{two}/model").state_dict()
        opened[-1]["dev"] = torch.tensor(scores["dev"])
    assert opened[0].keys() == opened[1].keys()
    for name, weight in opened[0].items():
        torch.testing.assert_close(opened[1][name], weight, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
