"""What identifies an encoder or tokenizer: the bytes of a local folder, read once, or a hub name."""

import hashlib

import pytest

from tlm_ray import storage
from tlm_ray.retrieval.methods import Dense
from tlm_ray.runs.card import keep_card, read_card
from tlm_ray.storage.digests import identity_of, identity_of_file
from tlm_ray.training.scoring.inference import _identity


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text("{}")
    (tmp_path / "encoder" / "weights").write_bytes(bytes(1000))
    return tmp_path / "encoder"


@pytest.fixture
def read(monkeypatch):
    """The files whose digests were worked out, in order."""
    found, digest = [], storage.digest
    monkeypatch.setattr(storage, "digest", lambda uri: found.append(uri.rpartition("/")[2]) or digest(uri))
    return found


def test_a_folder_is_its_files_and_a_hub_name_a_name(folder):
    digests = {
        name: hashlib.sha256(data).hexdigest() for name, data in (("config.json", b"{}"), ("weights", bytes(1000)))
    }
    assert identity_of(str(folder)) == {"files": digests}
    assert identity_of("google-bert/bert-base-uncased") == {"name": "google-bert/bert-base-uncased"}


def test_a_file_is_read_once_until_it_changes(folder, read):
    first = [identity_of(str(folder)), *(Dense(encoder=str(folder)).identity(depth)["encoder"] for depth in (5, 10))]
    assert read == ["config.json", "weights"] and all(one == first[0] for one in first)
    (folder / "weights").write_bytes(b"1" * 1000)  # of the same size
    assert identity_of(str(folder)) != first[0]
    assert read == ["config.json", "weights", "weights"]


def test_a_model_card_may_be_written_again_and_a_readme_of_others_counts(folder):
    first, files = identity_of(str(folder)), _identity(str(folder))
    for command in ("train.py", "train.py --log-json events"):
        keep_card(str(folder), f"---\ntags:\n- tlm_ray\n---\n{command}\n")
        assert read_card(str(folder)) and identity_of(str(folder)) == first and _identity(str(folder)) == files
    (folder / "README.md").write_text("about this encoder")
    assert list(identity_of(str(folder))["files"]) == ["README.md", "config.json", "weights"]
    assert len(_identity(str(folder))) == 3


def test_a_folder_in_place_of_a_file_is_named(folder):
    with pytest.raises(ValueError, match="encoder': has 2 files; name one of them"):
        identity_of_file(str(folder))
    assert identity_of_file(str(folder / "weights")) == hashlib.sha256(bytes(1000)).hexdigest()
