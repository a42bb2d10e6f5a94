"""GPT-2's own kind of tokenizer: byte-level, without [MASK], [CLS], [SEP] and padding; rows end with its end."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from small import GEOMETRY, small_flow, small_recipe
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from tlm_ray import make
from tlm_ray.evaluation.predictions import read_predictions
from tlm_ray.training.encoders.starts import Pretrained, Scratch
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.objectives import Clm, Mlm
from tlm_ray.training.scoring.predictor import Classifier
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.tokenizer import frame_of, load_tokenizer

END = "<|endoftext|>"


@pytest.fixture
def folder(data, tmp_path) -> str:
    """The folder of such a tokenizer, trained on the small corpus."""
    texts = pq.read_table(data / "corpus" / "part-0.parquet")["text"].to_pylist()
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, vocab_size=300, special_tokens=[END], show_progress=False)
    own = tmp_path / "gpt2"
    own.mkdir()
    trained.save_model(str(own))
    (own / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    return str(own)


def test_rows_end_with_the_end_of_text(folder, tmp_path):
    plain, tokenizer = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    assert plain("the sea")["input_ids"] and plain("")["input_ids"] == []
    end = tokenizer.eos_token_id
    assert tokenizer("the sea")["input_ids"] == [*plain("the sea")["input_ids"], end]
    assert tokenizer("the", "sea")["input_ids"] == [*plain("the")["input_ids"], end, *plain("sea")["input_ids"], end]
    assert tokenizer("")["input_ids"] == [end] and tokenizer.pad_token_id == len(tokenizer) - 1 != end
    assert len(tokenizer("the sea and the sky", truncation=True, max_length=4)["input_ids"]) == 4
    assert frame_of(tokenizer) == ([], [end])
    tokenizer.save_pretrained(tmp_path / "kept")
    assert AutoTokenizer.from_pretrained(tmp_path / "kept")("the sea")["input_ids"][-1] == end


@pytest.mark.usefixtures("alone")
def test_a_decoder_trains_on_it_and_opens_in_transformers(data, tmp_path, folder):
    recipe = small_recipe(
        start=Scratch(replace(GEOMETRY, family="gpt2")), objectives=(Clm(),), tokenizer=folder, block_tokens=12
    )
    flow = small_flow(data, tmp_path / "root")
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    blocks = stages.blocks.folder(flow.execution.root)
    tokenizer = AutoTokenizer.from_pretrained(f"{stages.stage_two.folder(flow.execution.root)}/model")
    for name in ("general", "train"):
        rows = read_blocks(f"{blocks}/{name}.arrow")
        assert (rows.tokens[rows.offsets[1:] - 1] == tokenizer.eos_token_id).all()
        assert (rows.tokens == tokenizer.eos_token_id).sum() == len(rows)
    general = read_blocks(f"{blocks}/general.arrow")
    assert general.lengths.max() == 12 and stages.metrics.record(flow.execution.root)["facts"]["test"] > 0

    model = AutoModelForSequenceClassification.from_pretrained(f"{stages.stage_two.folder(flow.execution.root)}/model")
    texts = pq.read_table(data / "tasks" / "topics" / "test.parquet")["text"].to_pylist()
    rows = read_blocks(f"{blocks}/test.arrow")
    with torch.no_grad():
        encoded = [tokenizer(text, truncation=True, max_length=48, return_tensors="pt") for text in texts]
        said = [model(**one).logits[0] for one in encoded]
    assert [one["input_ids"].shape[1] for one in encoded] == rows.lengths.tolist()
    known = read_predictions(stages.metrics.folder(flow.execution.root), "test")
    np.testing.assert_allclose(torch.stack(said).numpy(), known.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("alone")
def test_a_decoder_of_word_pieces_reads_no_token_types(data, tmp_path):
    """GPT-2 would add the embedding of a word for each type, which was not there in training."""
    recipe = small_recipe(start=Scratch(replace(GEOMETRY, family="gpt2")), objectives=(Clm(),), block_tokens=12)
    flow = small_flow(data, tmp_path / "root")
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    folder = f"{stages.stage_two.folder(flow.execution.root)}/model"
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    texts = pq.read_table(data / "tasks" / "topics" / "test.parquet")["text"].to_pylist()
    with torch.no_grad():
        said = [model(**tokenizer(text, truncation=True, max_length=48, return_tensors="pt")).logits for text in texts]
    known = read_predictions(stages.metrics.folder(flow.execution.root), "test")
    np.testing.assert_allclose(torch.cat(said).numpy(), known.logits, rtol=1e-3, atol=1e-4)
    tokenizer.save_pretrained(tmp_path / "again")
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path / "again")("the sea", "the sky")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("of_tokenizer", "of_config"),
    [({"pad_token": END}, {}), ({}, {"pad_token_id": 0}), ({"padding_side": "left"}, {})],
    ids=["it ends rows", "of the configuration", "on the left"],
)
def test_a_decoder_with_its_own_padding_opens_in_transformers(data, tmp_path, folder, of_tokenizer, of_config):
    file = Path(folder) / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | of_tokenizer))
    plain = AutoTokenizer.from_pretrained(folder)
    assert plain.eos_token_id == 0
    size = {"vocab_size": len(plain), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64, "eos_token_id": 0}
    GPT2LMHeadModel(GPT2Config(**size, **of_config, initializer_range=0.3)).save_pretrained(folder)
    recipe = small_recipe(start=Pretrained(folder), objectives=(Clm(),), tokenizer=folder)
    flow = small_flow(data, tmp_path / "root")
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    known = read_predictions(stages.metrics.folder(flow.execution.root), "test").logits
    own = f"{stages.stage_two.folder(flow.execution.root)}/model"
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(own), AutoTokenizer.from_pretrained(own)
    texts = pq.read_table(data / "tasks" / "topics" / "test.parquet")["text"].to_pylist()
    how = {"truncation": True, "padding": True, "return_tensors": "pt"}
    for some in (texts, texts[:1]):
        with torch.no_grad():
            said = model(**tokenizer(some, **how)).logits.numpy()
        np.testing.assert_allclose(said, known[: len(some)], rtol=0, atol=1e-5)
        predicted = Classifier.open(own, "cpu", "fp32").logits([some])
        np.testing.assert_allclose(predicted, known[: len(some)], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("alone")
def test_a_pretrained_decoder_gets_an_embedding_for_padding(data, tmp_path, folder):
    """As GPT-2's own, which has 50,257 tokens, none of them padding."""
    plain = AutoTokenizer.from_pretrained(folder)
    config = GPT2Config(vocab_size=len(plain), n_embd=32, n_layer=1, n_head=2, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(folder)
    recipe = small_recipe(start=Pretrained(folder), objectives=(Clm(),), tokenizer=folder)
    flow = small_flow(data, tmp_path / "root")
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    model = GPT2LMHeadModel.from_pretrained(f"{stages.stage_one.folder(flow.execution.root)}/model")
    assert model.config.vocab_size == len(plain) + 1 == model.get_input_embeddings().weight.shape[0]


@pytest.mark.parametrize("pad", [END, None], ids=["the end of text", "none"])
def test_a_llama_gets_an_embedding_before_its_configuration_names_the_padding(folder, pad):
    """Its embedding refuses a padding token that is not in the vocabulary."""
    if pad:
        file = Path(folder) / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": pad}))
    entries = len(AutoTokenizer.from_pretrained(folder))
    size = {"vocab_size": entries, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(LlamaConfig(**size, **heads, eos_token_id=0, pad_token_id=0)).save_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    weights = TrainedWeights(folder, labels=("a", "b"), seed=0, tokenizer=tokenizer)
    model = weights.classifier_head().model
    assert model.config.pad_token_id == weights.config.pad_token_id == tokenizer.pad_token_id == entries
    assert model.get_input_embeddings().weight.shape[0] == entries + 1


def test_masks_need_a_token_for_them(folder, data, tmp_path):
    with pytest.raises(
        ValueError, match="has no mask_token; an encoder's tokenizer is needed, such as BERT's, or a dec"
    ):
        load_tokenizer(folder, needs=Mlm.needs)
    with pytest.raises(ValueError, match="has no cls_token"):
        load_tokenizer(folder, needs=("cls_token", "sep_token"))
