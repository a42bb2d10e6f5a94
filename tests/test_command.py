"""The command tlm: every script by its name, from a checkout and from an installed package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tlm_ray import command
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.runs.cli.commands import predict_command

ROOT = Path(__file__).parents[1]


@pytest.fixture
def called(monkeypatch):
    """Return what would be run, and its environment."""
    seen = []
    monkeypatch.setattr(os, "execve", lambda program, words, environment: seen.append((words, environment)))

    def call(*words: str):
        monkeypatch.setattr(sys, "argv", ["tlm", *words])
        command.main()
        return seen.pop()

    return call


def test_help_has_a_line_for_every_script(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tlm"])
    command.main()
    said = capsys.readouterr().out
    names = re.findall(r"^  ([a-z0-9-]+) +[A-Z]", said, re.M)
    assert names[:8] == ["train", "predict", "table", "sweep", "export", "serve", "status", "clean"]
    assert len(names) == len(list((ROOT / "experiments").glob("*.py"))) == len(set(names))


def test_bash_completes_commands_and_options(tmp_path):
    """As a user's shell would: with `tlm` on the path, from the text that `tlm completion` prints."""
    tlm = tmp_path / "tlm"
    tlm.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tlm_ray.command "$@"\n')
    tlm.chmod(0o755)
    script = """
        eval "$(tlm completion)"
        complete -p tlm
        for words in "tlm st" "tlm serve --po"; do
            COMP_WORDS=($words)
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _tlm
            echo "${COMPREPLY[@]}"
        done
    """
    found = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=found, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["complete -o default -F _tlm tlm", "status stage-one stage-two", "--port"], (
        done.stderr
    )


@pytest.mark.parametrize(
    ("name", "script"), [("train", "train"), ("table", "main_table"), ("rho1", "rho1"), ("stage-two", "stage_two")]
)
def test_a_command_is_its_script_with_the_other_words(called, name, script):
    words, environment = called(name, "--tasks", "a b")
    assert words == [sys.executable, str(ROOT / "experiments" / f"{script}.py"), "--tasks", "a b"]
    assert environment[command.VIA] == "1" and environment["PATH"] == os.environ["PATH"]


def test_a_mistyped_command_gets_the_nearest(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tlm", "trian"])
    with pytest.raises(SystemExit, match=r"tlm trian: no such command; did you mean train\? \(tlm --help\)"):
        command.main()


def test_what_is_printed_to_go_on_is_the_same_kind_of_command(data, monkeypatch):
    task = read_task(str(data / "tasks" / "topics"))
    assert predict_command(task, ["model"]).startswith("python experiments/predict.py --model model")
    monkeypatch.setenv(command.VIA, "1")
    assert predict_command(task, ["model"]).startswith("tlm predict --model model --texts new.csv")


@pytest.mark.slow
@pytest.mark.long
def test_the_wheel_needs_no_file_of_the_repository(data, tmp_path):
    """In an empty folder, with the package that pip builds: from a CSV to a model, printed predictions and a plan."""
    how = [sys.executable, "-m", "pip", "--quiet"]
    source, wheels, site, here = (tmp_path / name for name in ("source", "wheels", "site", "here"))
    for folder in ("tlm_ray", "experiments"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    subprocess.run([*how, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("tlm_ray-*.whl")
    subprocess.run([*how, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    here.mkdir()
    rows = pq.read_table(data / "tasks" / "topics" / "train.parquet")
    pq.write_table(rows, here / "reviews.parquet")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or name == "RAY_TMPDIR"}

    def tlm(*words: str) -> str:
        run = [str(site / "bin" / "tlm"), *words]
        done = subprocess.run(run, cwd=here, env=kept | {"PYTHONPATH": str(site)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    small = ["--steps", "4", "--steps-two", "2", "--k", "5", "--seeds", "1", "--precision", "fp32"]
    own = ["--tasks", str(here / "reviews.parquet"), "--corpus", str(data / "corpus")]
    said = tlm("train", *own, *small)
    assert "tlm predict --model" in said and (here / "model" / "model.safetensors").exists()
    assert re.search(
        r"^(sea|sky|kitchen) [\d.]+%: a wave$", tlm("predict", "--model", "model", "--text", "a wave"), re.M
    )
    assert "complete -o default -F _tlm tlm" in tlm("completion")
    assert "stages cached" in tlm("table", *own, *small, "--dry-run")
    assert {path.name for path in here.iterdir()} == {".tlm", "mlflow.db", "model", "reviews.parquet"}
