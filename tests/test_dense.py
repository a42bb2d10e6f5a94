"""Dense retrieval: the largest cosines of mean-pooled embeddings, whatever the shards."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from small import SELECTED, laid_out, read_selection, small_flow, small_recipe
from transformers import AutoTokenizer, BertConfig, BertModel

from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.retrieval.engine.queries import distinct_texts
from tlm_ray.retrieval.methods import Dense, Search
from tlm_ray.retrieval.methods.embedding import BATCH, DenseSearcher, Encoder
from tlm_ray.runs.stages.making import make
from tlm_ray.training.tokens.tokenizer import train_wordpiece

TEXTS = [f"passage {i} speaks of {'tide ' * (i % 7)}and comet {i % 13}" for i in range(3 * BATCH + 5)] + ["", None]
QUERIES = ["the tide", "comet 12", ""]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    """A small BERT with random weights and its tokenizer, as a hub repository holds them."""
    folder = tmp_path_factory.mktemp("encoder")
    train_wordpiece([text or "" for text in TEXTS], vocabulary=200).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=200, max_position_embeddings=64, **size)).save_pretrained(folder)
    return str(folder)


def test_an_embedding_is_the_mean_of_the_last_layer_of_length_one(encoder):
    tokens = AutoTokenizer.from_pretrained(encoder)("passage 3 speaks", return_tensors="pt")
    states = BertModel.from_pretrained(encoder).eval()(**tokens).last_hidden_state[0].mean(0)
    (found,) = Encoder(encoder).embed(["passage 3 speaks", "padding " * 20])
    torch.testing.assert_close(found[0], states / states.norm(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("k", [1, 10, len(TEXTS), 5_000])
def test_the_largest_cosines_are_found(encoder, k):
    vectors, queries = (torch.cat(list(Encoder(encoder).embed(texts))).numpy() for texts in (TEXTS, QUERIES))
    expected = 1 + queries @ vectors.T
    allowed = np.arange(len(TEXTS)) % 10 != 3
    texts = pa.array(TEXTS, pa.string())
    found = DenseSearcher(QUERIES, encoder).search(texts, k=k, allowed=allowed, floor=np.zeros(3, np.float32))
    for ids, scores, row in zip(found.ids, found.scores, expected, strict=True):
        count = min(k, allowed.sum())
        assert (ids[count:] == -1).all() and allowed[ids[:count]].all()
        np.testing.assert_allclose(scores[:count], np.sort(row[allowed])[::-1][:count], rtol=1e-5)
        np.testing.assert_allclose(scores[:count], row[ids[:count]], rtol=1e-5)


@pytest.mark.parametrize("source", ["no-such-owner/no-such-encoder", "here/but-empty"])
@pytest.mark.usefixtures("alone")
def test_an_encoder_that_does_not_open_is_named_before_any_shard_is_read(source, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "but-empty").mkdir(parents=True)
    flow = small_flow(data, tmp_path / "root")
    task = flow.task("topics")
    make([flow.passages(small_recipe()), task], flow.execution.root)
    folders = {"passages": "not read", "task": task.folder(flow.execution.root)}
    encoder = str(tmp_path / source) if source.startswith("here") else source
    with pytest.raises(ValueError, match=f"encoder '{encoder}': transformers cannot open it .*; give the hub name or"):
        Dense(encoder=encoder).find(str(tmp_path / "out"), folders, Search(depth=3))


def test_code_that_an_encoder_brings_is_never_run(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "y")  # transformers asks, unless it is told
    folder = tmp_path / "custom"
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "custom", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match=r"encoder '.*custom': transformers cannot open it .*custom code"):
        Encoder(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("alone")
def test_shards_do_not_show(encoder, data, tmp_path):
    recipe, made = small_recipe(method=Dense(encoder=encoder)), []
    for shards, workers in ((1, 1), (7, 2)):
        flow = small_flow(data, tmp_path / str(shards), shards=shards, workers=workers)
        stage = flow.stages(recipe, "topics", 0).neighbours
        make([stage], flow.execution.root)
        made.append((Path(stage.folder(flow.execution.root)) / SELECTED).read_bytes())
    assert made[0] == made[1]
    selection = read_selection(Path(stage.folder(flow.execution.root)))
    store = PassageStore.open(flow.passages(recipe).folder(flow.execution.root))
    assert selection["text"].to_pylist() == store.read(0, len(store))["text"].take(selection["passage"]).to_pylist()
    assert set(stage.inputs) == {"passages", "task"}  # what BM25 counts is of no use to it
    another = laid_out(flow, method=Dense(encoder="another")).neighbours
    assert another.fingerprint != stage.fingerprint


def test_queries_that_differ_in_the_order_of_words_are_two():
    texts, rows = distinct_texts(["tide and comet", "comet and tide", "tide and comet", ""])
    assert texts == ["tide and comet", "comet and tide", ""] and rows.tolist() == [0, 1, 3]
