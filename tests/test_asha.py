"""A sweep that stops trials early, on a Ray with room for one training: the places of stopped trials serve the next."""

import csv
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from alone import in_this_process
from ray.tune.schedulers import TrialScheduler
from test_jobs import REPOSITORY, arguments, environment
from test_sweep import flow_of

from tlm_ray import Changes, Space
from tlm_ray.report.sweeps import sweep_csv, sweep_markdown
from tlm_ray.runs import sweeping
from tlm_ray.runs.cpu_recipes import TINY_RECIPE
from tlm_ray.runs.execution import make

TIMEOUT_S = 900  # two sweeps take 100 s on two cores; what waits for a place that nobody frees waits for ever

# Scores of so small a training say nothing: the first trial is stopped at its first evaluation, the other one would be
# at its last. What is left of their processes is told afterwards; then the same sweep runs on, as a grid.
DRIVER = """
import os, runpy, sys, time
import mlflow, psutil, ray
from ray import tune
from ray.cluster_utils import Cluster
from tlm_ray.runs import sweeping

class StopsTheFirst(tune.schedulers.FIFOScheduler):
    first = None
    def on_trial_result(self, controller, trial, result):
        self.first = self.first or trial
        return "STOP" if trial is self.first or result["training_iteration"] == 4 else "CONTINUE"

def command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it is gone by now
        return ""

def left():
    names = [command(process) for process in psutil.Process().children(recursive=True)]
    return [name for name in names if name.startswith(("ray::Train", "ray::RayTrain", "ray::Placement"))]

sweeping._scheduler = lambda *_: StopsTheFirst()
os.environ["RAY_ADDRESS"] = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}).address
script, *options = sys.argv[1:]
for options in ([*options, "--search", "asha"], [*options, "--out", options[options.index("--out") + 1] + "/grid"]):
    sys.argv = [script, *options]
    runpy.run_path(script, run_name="__main__")
    deadline = time.monotonic() + 30
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    client = mlflow.MlflowClient(options[options.index("--tracking-uri") + 1])
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()], "tags.training_key != ''")
    print("runs:", sorted((run.info.status, run.info.run_name) for run in runs))
    print("left:", left(), "free:", ray.available_resources().get("CPU"), flush=True)
    ray.shutdown()
    sweeping._scheduler = lambda *_: None
"""
GRID = ["--steps-two", "200", "--rho1s", "1", "--rho2s", "20", "--methods", "bm25", "random", "--ks", "5"]


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory) -> tuple[Path, str]:
    """The folder of a sweep whose first trial was stopped and, by a second sweep, finished; and what they printed."""
    root = tmp_path_factory.mktemp("asha")
    make_blocks(data, root)
    kept = [a for a in arguments(data, root) if a not in ("--k", "5", "--steps-two", "4", "--seeds", "1")]
    command = [sys.executable, "-c", DRIVER, "experiments/sweep.py", *kept, *GRID]
    own = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its Ray is left behind, and its address with it
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(RAY_TMPDIR=own),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


def make_blocks(data: Path, root: Path) -> None:
    """Make all that comes before the trainings, which takes a second here and 20 on the sweep's Ray."""
    flow = flow_of(data, root)
    base = Changes(steps=8, steps_two=200, precision="fp32").recipe("topics", flow)
    tried = Space(k=[5], rho1=[1], rho2=[20.0], method=["bm25", "random"]).recipes(base)
    with in_this_process():
        make([flow.stages(recipe, "topics", 0).counts for recipe in tried], flow.execution.root)


@pytest.mark.slow
def test_a_stopped_trial_holds_nothing_and_leaves_no_process(swept):
    assert swept[1].count("left: [] free: 1.0") == 2, swept[1]


@pytest.mark.slow
def test_a_stopped_trial_is_no_result_and_a_trial_that_trained_to_its_end_is_one(swept):
    root, _ = swept
    finished, stopped = json.loads((root / "out" / "sweep_topics.json").read_text())["trials"]
    assert finished["dev"] is not None and stopped["dev"] is None
    assert stopped["stopped_step"] == 50 and 0 <= stopped["stopped_dev"] <= 100
    table = (root / "out" / "sweep_topics.md").read_text()
    assert "stopped" in table and "failed" not in table


@pytest.mark.slow
def test_a_later_grid_goes_on_at_the_checkpoint_of_a_stopped_trial(swept):
    root, _ = swept
    trials = json.loads((root / "out" / "grid" / "sweep_topics.json").read_text())["trials"]
    assert [trial["dev"] is not None for trial in trials] == [True, True]


@pytest.mark.slow
def test_the_run_of_a_stopped_trial_is_killed_until_it_is_taken_up_again(swept):
    name = "k 5, rho1 1, rho2 20.0, method {}, depth 5 · topics"
    after_asha, after_grid = (line for line in swept[1].splitlines() if line.startswith("runs:"))
    assert after_asha == f"runs: {[('FINISHED', name.format('random')), ('KILLED', name.format('bm25'))]}"
    assert after_grid == f"runs: {[('FINISHED', name.format('bm25')), ('FINISHED', name.format('random'))]}"


@pytest.fixture
def scheduler() -> TrialScheduler:
    """What a sweep gives Tune for stage two of 400 steps with an evaluation each 50."""
    made = sweeping._scheduler("asha", [replace(TINY_RECIPE.stage_two, steps=400)])
    made.set_search_properties("dev", "max")
    return made


def decisions(scheduler: TrialScheduler, name: str, *results: tuple[int, float]) -> list[str]:
    """Return what the scheduler says of a trial's results, each a step and a score."""
    trial = SimpleNamespace(trial_id=name)
    scheduler.on_trial_add(None, trial)
    return [scheduler.on_trial_result(None, trial, {"step": step, "dev": dev}) for step, dev in results]


def test_asha_compares_after_two_and_four_evaluations(scheduler):
    assert decisions(scheduler, "good", (50, 90), (100, 90), (200, 90)) == ["CONTINUE"] * 3
    assert decisions(scheduler, "bad", (50, 10), (100, 10)) == ["CONTINUE", "STOP"]
    assert decisions(scheduler, "late", (50, 10), (100, 95), (150, 10), (200, 10)) == [*["CONTINUE"] * 3, "STOP"]


def test_asha_judges_a_resumed_trial_by_its_steps_not_by_its_reports(scheduler):
    decisions(scheduler, "good", (200, 90))
    assert decisions(scheduler, "resumed", (200, 10)) == ["STOP"]


def test_tables_tell_stopped_trials_from_failed_ones():
    point = {"k": 5, "rho1": 1, "rho2": 20.0, "method": "bm25"}
    stopped = point | {"dev": None, "stopped_step": 50, "stopped_dev": 40.5}
    trials = [point | {"dev": None}, stopped, point | {"dev": 41.0}]
    assert [line["stopped_dev"] for line in csv.DictReader(sweep_csv(trials).splitlines())] == ["", "40.5", ""]
    assert [row.split(" | ")[5:] for row in sweep_markdown(trials).splitlines()[2:]] == [
        ["41.00", "–", "– |"],
        ["stopped", "50", "40.50 |"],
        ["failed", "–", "– |"],
    ]
