"""What a first user stumbles over: options of other tools, a hub out of reach, results in a folder that Ray deletes."""

import socket
import sys
from pathlib import Path

import pytest
import transformers

from tlm_ray import plain_errors, storage
from tlm_ray.runs.cli.hints import OTHERS
from tlm_ray.runs.cli.options import Folders, Place, parse
from tlm_ray.runs.tracking.mlflow_store import Store
from tlm_ray.runs.tracking.tracker import default_uri
from tlm_ray.storage.opening import open_settings


@pytest.fixture
def submitted(tmp_path, monkeypatch) -> Path:
    """The home folder of a job that runs in Ray's copy of its folder."""
    copy, home = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_1", tmp_path / "home"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home / "tlm_ray"


def test_results_of_a_submitted_job_outlast_it(submitted, capsys):
    place = Place()
    assert (place.root, place.out) == (f"{submitted}/.tlm", f"{submitted}/results")
    assert f"--root: {submitted}/.tlm, because Ray deletes its copy of the job's folder" in capsys.readouterr().out
    assert default_uri() == f"sqlite:///{submitted}/mlflow.db"
    kept = Folders(root="s3://bucket/tlm?region=us-east-1", out="/lasting/tables")
    assert (kept.root, kept.out) == ("s3://bucket/tlm?region=us-east-1", "/lasting/tables")


@pytest.mark.parametrize("name", ["root", "out"])
def test_a_relative_place_that_was_asked_for_is_refused_there(submitted, name):
    with pytest.raises(ValueError, match=rf"--{name} mine: lies in Ray's copy of the job's folder, .* give an abs"):
        Folders(**{name: "mine"})


def test_elsewhere_relative_places_are_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Folders(root="mine").root == f"{tmp_path}/mine" == storage.absolute("mine")
    assert Folders().out == f"{tmp_path}/results"


@pytest.mark.parametrize(
    "words", [["--lr", "1e-3"], ["--learning_rate=3"], ["--epochs", "3"], ["--root", "x", "--bf16"]]
)
def test_an_option_of_other_tools_gets_the_name_that_it_has_here(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script.py", *words])
    with pytest.raises(SystemExit):
        parse(Folders, "A script.")
    option = words[-1 if words[-1] == "--bf16" else 0].partition("=")[0].replace("_", "-")
    assert f"{option}: {OTHERS[option]}" in capsys.readouterr().out


def test_hints_are_for_what_is_no_option_here(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script.py", "--nonsense"])
    with pytest.raises(SystemExit):
        parse(Folders, "A script.")
    assert not any(words in capsys.readouterr().out for words in OTHERS.values())


def test_a_hub_out_of_reach_is_one_line(capsys):
    gone = type("ConnectError", (Exception,), {"__module__": "httpx2._exceptions"})
    with pytest.raises(SystemExit) as stop, plain_errors():
        raise gone("Name or service not known")
    assert stop.value.code == 2
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "error the Hugging Face hub cannot be reached (Name or service not known); connect to a network, or give local "
        "files"
    )
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("ours")


def test_a_mistyped_model_is_told_at_once_where_there_is_no_network(tmp_path, monkeypatch):
    asked = []

    def nowhere(host, port):
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("tlm_ray.storage.opening.getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(OSError, match=r"'no/model' is no folder here, and https://.* cannot be reached .*correct t"):
        open_settings(transformers.AutoConfig, "no/model")
    assert len(asked) == 1
    transformers.BertConfig(vocab_size=10).save_pretrained(tmp_path)
    assert open_settings(transformers.AutoConfig, str(tmp_path)).vocab_size == 10 and len(asked) == 1


def test_what_mlflow_keeps_of_a_job_lies_beside_its_database(submitted):
    store = Store(default_uri(), "mine")
    submitted.mkdir(parents=True)
    found = store.client.get_experiment(store.experiment)
    assert found.artifact_location.removeprefix("file://") == f"{submitted}/mlruns/mine"
