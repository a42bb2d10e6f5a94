"""The sweep: shared stages once, finished trials never again, the best recipe as Python that runs."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from test_jobs import REPOSITORY, arguments, environment

from tlm_ray import recipe_for
from tlm_ray.runs.options import Options
from tlm_ray.runs.recipes import Recipe
from tlm_ray.runs.sweeping import Space, best_recipe, recipes
from tlm_ray.training.schedules import Schedule

GRID = ["--ks", "5", "--rho1s", "1", "--rho2s", "20", "--methods", "bm25", "random"]


def start(data: Path, root: Path, *options: str) -> subprocess.Popen:
    kept = [a for a in arguments(data, root) if a not in ("--k", "5")]
    command = [sys.executable, "experiments/sweep.py", *kept, *GRID, *options]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def finished(root: Path) -> dict[str, int]:
    """Return the finished trials and when each was."""
    return {str(f): f.stat().st_mtime_ns for f in (root / "tlm" / "stage_two").glob("*/record.json")}


def test_a_killed_sweep_goes_on_without_repeating_a_finished_trial(data, tmp_path):
    first = start(data, tmp_path)
    assert first.stdout is not None
    while len(before := finished(tmp_path)) < 1:
        assert first.poll() is None, first.stdout.read()
        subprocess.run(["sleep", "0.2"], check=True)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    second = start(data, tmp_path)
    output, _ = second.communicate(timeout=1800)
    assert second.returncode == 0, output
    after = finished(tmp_path)
    assert len(after) == 2
    assert before.items() <= after.items()

    retrievals = [json.loads(f.read_text())["recipe"] for f in (tmp_path / "tlm" / "neighbours").glob("*/record.json")]
    assert sorted(r["parameters"]["method"] for r in retrievals) == ["bm25", "random"]
    trials = json.loads((tmp_path / "out" / "sweep.json").read_text())["trials"]
    assert len(trials) == 2 and all(0 <= trial["dev"] <= 100 for trial in trials)
    (line,) = re.findall(r"^recipe = .*", output, re.M)
    best = max(trials, key=lambda trial: trial["dev"])
    flow = options(data, tmp_path).flow()
    stage = flow.stage_two(built(line), flow.task("topics"), 0)
    assert stage.fingerprint[:12] in [t["fingerprint"] for t in trials if t["dev"] == best["dev"]]


def options(data: Path, root: Path) -> Options:
    """Return what the command line of `arguments` says, as far as it identifies a stage."""
    places = {"task_root": str(data / "tasks"), "corpus": str(data / "corpus"), "root": str(root / "tlm")}
    return Options(tasks=["topics"], steps=8, steps_two=4, precision="fp32", **places)


def built(line: str) -> Recipe:
    """Run a printed recipe."""
    names: dict = {"replace": replace, "recipe_for": recipe_for, "Schedule": Schedule}
    exec(line, names)
    return names["recipe"]


def test_points_that_come_to_the_same_training_are_one_trial():
    space = Space(k=(0, 5), rho1=(0, 3), rho2=(20.0,), method=("bm25", "random"))
    tried = recipes(space, Options(), "docstrings")
    assert len(tried) == 8
    assert sum(recipe.uses_general for recipe in tried) == 2


def test_the_best_recipe_is_python_that_makes_it():
    trials = [
        {"k": 5, "rho1": 3, "rho2": 20.0, "method": "random", "depth": 12, "dev": 41.0},
        {"k": 9, "rho1": 1, "rho2": 5.0, "method": "bm25", "depth": 12, "dev": 50.0},
        {"k": 7, "rho1": 1, "rho2": 5.0, "method": "bm25", "depth": 12, "dev": None},
    ]
    recipe = built(best_recipe(trials, Options(steps=40, precision="fp32"), "docstrings"))
    assert (recipe.k, recipe.rho1, recipe.rho2, recipe.method, recipe.depth) == (9, 1, 5.0, "bm25", 12)
    assert (recipe.stage_one.steps, recipe.precision) == (40, "fp32")
