"""Input that means harm: it is refused or made harmless with a clear message, and no code of it is ever run."""

import gzip
import json
import os
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_inference import TEXTS, make_model
from test_stages import make_stage
from transformers import AutoConfig, AutoModel

from tlm_ray import storage
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.retrieval.methods.embedding import Encoder
from tlm_ray.storage import files
from tlm_ray.training.encoders.starts import Architecture, Pretrained
from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.predictor import Classifier
from tlm_ray.training.tokens.tokenizer import load_tokenizer


class Bomb:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path):
    """Where a folder is once foreign code has run."""
    return tmp_path / "mark"


def test_the_bomb_goes_off(mark, tmp_path):
    torch.save(Bomb(mark), tmp_path / "model.bin")
    torch.load(tmp_path / "model.bin", weights_only=False)
    assert mark.exists()


@pytest.fixture
def folder(tmp_path):
    """A small classifier's folder."""
    (tmp_path / "model").mkdir()
    return Path(make_model(tmp_path / "model"))


def weights_of(source: str) -> None:
    """Open an encoder as a training begins with it."""
    with Pretrained(source).weights(tokenizer=load_tokenizer(source), labels=("a", "b"), seed=0) as weights:
        weights.classifier_head()


OPENERS = {
    "predict": lambda source: Classifier.open(source, "cpu", "fp32").logits([TEXTS[:3]]),
    "metrics": lambda source: open_classifier(source, labels=("sea", "sky", "kitchen"), device="cpu"),
    "start": weights_of,
    "dense": lambda source: list(Encoder(source).embed(TEXTS[:3])),
}


@pytest.mark.parametrize("name", OPENERS)
def test_weights_that_would_have_to_be_unpickled_are_refused(folder, mark, name):
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Bomb(mark)}, folder / "pytorch_model.bin")
    with pytest.raises((OSError, ValueError), match="safetensors"):
        OPENERS[name](str(folder))
    assert not mark.exists()


def bring_code(folder: Path, mark: Path) -> None:
    """Have a model and its tokenizer name code of their folder, which leaves a mark."""
    for file, key, value in (
        ("config.json", "auto_map", {"AutoModel": "own.Own", "AutoModelForSequenceClassification": "own.Own"}),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["own.Own", "own.Own"]}),
    ):
        settings = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(settings | {key: value}))
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    torch.save(Bomb(mark), folder / "training_args.bin")


@pytest.mark.parametrize("name", OPENERS)
def test_code_that_a_model_or_tokenizer_brings_is_not_run(folder, mark, name):
    bring_code(folder, mark)
    OPENERS[name](str(folder))
    assert not mark.exists()


def test_who_trusts_a_models_code_runs_it(folder, mark):
    """So the test above has something to find."""
    bring_code(folder, mark)
    with pytest.raises(AttributeError, match="Own"):
        AutoModel.from_pretrained(str(folder), trust_remote_code=True)
    assert mark.exists()


def lying_header(data: bytes) -> bytes:
    """Say that the list of tensors is a petabyte long."""
    return struct.pack("<Q", 2**50) + data[8:]


def deep_header(data: bytes) -> bytes:
    header = b"[" * 100_000
    return struct.pack("<Q", len(header)) + header + data


def beyond_the_end(data: bytes) -> bytes:
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    for tensor in header.values():
        if "data_offsets" in tensor:
            tensor["data_offsets"] = [0, 2**40]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("lie", [lying_header, deep_header, beyond_the_end, lambda data: data[:1000], lambda data: b""])
def test_weights_that_lie_of_their_sizes_are_refused(folder, name, lie):
    file = folder / "model.safetensors"
    file.write_bytes(lie(file.read_bytes()))
    with pytest.raises((OSError, ValueError)) as caught:
        OPENERS[name](str(folder))
    assert "model" in str(caught.value)


@pytest.mark.parametrize("name", ["predict", "dense"])
def test_weights_that_are_no_numbers_predict_and_choose_nothing(folder, name):
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.encoder.layer.0.attention.self.query.bias"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"model'.*(not finite; its weights are corrupt|no finite embedding)"):
        OPENERS[name](str(folder))


def test_an_architecture_is_taken_from_a_folder_without_its_weights_or_code(folder, mark):
    torch.save(Bomb(mark), folder / "pytorch_model.bin")
    with Architecture(str(folder)).weights(tokenizer=load_tokenizer(folder), labels=("a", "b"), seed=0) as weights:
        assert weights.config.num_hidden_layers == AutoConfig.from_pretrained(str(folder)).num_hidden_layers
    assert not mark.exists()


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.tsv.gz"])
def test_a_small_packed_file_of_one_endless_line_is_refused_in_bounded_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "LONGEST_LINE", 1_000_000)
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as stream:
        stream.write(b'text,label\n"' if "sv" in name else b'{"text": "')
        for _ in range(100):
            stream.write(b"a" * 1_000_000)
    with pytest.raises(
        ValueError, match=f"file '.*{name}'.*(line 1: has more than 1,000,000 characters; split it|cannot be read)"
    ):
        list(read_columns(str(tmp_path / name)))


def test_a_line_within_the_limit_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    (tmp_path / "a.txt").write_text("123456789\n1234567\n\n12345678")
    assert list(storage.read_lines(str(tmp_path / "a.txt"))) == ["123456789\n", "1234567\n", "\n", "12345678"]


LIES = {
    "a list": b"[]",
    "a string": b'"yes"',
    "nothing": b"{}",
    "half": b'{"recipe":',
    "nested without end": b"[" * 200_000,
    "not UTF-8": b"\xff\xfe",
    "a number of a million digits": b'{"recipe": ' + b"9" * 1_000_000 + b"}",
    "empty": b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_record_that_is_none_is_named(tmp_path, lie):
    stage = make_stage()
    storage.write_bytes(storage.join(stage.folder(str(tmp_path)), "record.json"), LIES[lie])
    with pytest.raises(ValueError, match=r"record.json'.*(is not JSON|is corrupt)"):
        stage.record(str(tmp_path))


@pytest.mark.parametrize(
    "values", [{}, {"recipe": "yes", "facts": {}}, {"facts": {}}, {"recipe": {}}, {"recipe": {}, "facts": {}}]
)
def test_a_sealed_record_that_lies_is_named(tmp_path, values):
    stage = make_stage()
    storage.write_record(storage.join(stage.folder(str(tmp_path)), "record.json"), values)
    with pytest.raises(
        ValueError, match=r"record '.*' (is invalid: it has no recipe or no facts|is of another recipe)"
    ):
        stage.record(str(tmp_path))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a/../../b"])
def test_a_task_is_called_by_its_last_name_alone(name):
    assert "/" not in short_name(name)


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_a_task_that_is_not_below_its_root_is_not_there(tmp_path, name):
    (tmp_path / "tasks" / "a").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="not found"):
        read_task(name, task_root=str(tmp_path / "tasks"))


def test_pipes_and_devices_of_a_corpus_are_not_read(tmp_path):
    (tmp_path / "a.txt").write_text("one two")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to("/dev/zero")
    assert [file.name for file in open_corpus(str(tmp_path), column="text").files] == ["a.txt"]


def test_texts_with_nulls_and_control_characters_are_texts(tmp_path):
    text = "a\x00b \x1b[2J \u202e c"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (batch,) = read_columns(str(tmp_path / "a.jsonl"), ["text"])
    assert batch.column(0).to_pylist() == [text]


def test_each_promise_of_the_security_page_names_tests_that_are_there():
    here = Path(__file__).parent
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (here.parent / "SECURITY.md").read_text())
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (here / file).read_text(), f"{file}::{test}"
