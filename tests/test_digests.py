"""What identifies an encoder or tokenizer: the bytes of a local folder, read once, or a hub name."""

import hashlib

import pytest

from tlm_ray import storage
from tlm_ray.retrieval.methods import Dense
from tlm_ray.storage.digests import identity_of, identity_of_file


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


def test_a_folder_in_place_of_a_file_is_named(folder):
    with pytest.raises(ValueError, match="encoder': has 2 files; name one of them"):
        identity_of_file(str(folder))
    assert identity_of_file(str(folder / "weights")) == hashlib.sha256(bytes(1000)).hexdigest()
