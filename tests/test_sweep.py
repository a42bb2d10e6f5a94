"""The sweep: shared stages once, finished trials never again, the best recipe as Python that runs."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_jobs import REPOSITORY, arguments, environment
from tracked import empty_store
from waiting import wait_for

from tlm_ray import Changes, Cluster, Data, Flow, Place, Space, Trials, best_recipe, open_flow, recipe_for
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.registry import noted
from tlm_ray.runs.sweeps.sweeping import Swept
from tlm_ray.training.loop.schedules import Schedule

GRID = ["--ks", "5", "--rho1s", "1", "--rho2s", "20", "--methods", "bm25", "random"]


def start(data: Path, root: Path, *options: str) -> subprocess.Popen:
    kept = [a for a in arguments(data, root) if a not in ("--k", "--depth", "5")]
    command = [sys.executable, "experiments/sweep.py", *kept, *GRID, *options]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def finished(root: Path) -> dict[str, int]:
    """Return the finished trials and when each was."""
    return {str(f): f.stat().st_mtime_ns for f in (root / "tlm" / "stage_two").glob("*/record.json")}


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_sweep_goes_on_without_repeating_a_finished_trial(data, tmp_path):
    first = start(data, tmp_path)
    assert first.stdout is not None
    try:
        before = wait_for(lambda: finished(tmp_path) or first.poll() is not None, timeout_s=1200)
        assert first.poll() is None, first.stdout.read()
    finally:
        with contextlib.suppress(ProcessLookupError):
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
    trials = json.loads((tmp_path / "out" / "sweep_topics.json").read_text())["trials"]
    assert len(trials) == 2 and all(0 <= trial["dev"] <= 100 for trial in trials)
    (page,) = re.findall(r"--forget (.*) --delete", (REPOSITORY / "docs" / "stages.md").read_text())
    assert {each.name for each in noted(str(tmp_path / "tlm"))} == set(page.replace("sciie", "topics").split())
    (line,) = re.findall(r"^recipe = .*", output, re.M)
    best = max(trials, key=lambda trial: trial["dev"])
    flow = flow_of(data, tmp_path)
    stage = flow.stages(built(line), "topics", 0).stage_two
    assert stage.fingerprint[:12] in [t["fingerprint"] for t in trials if t["dev"] == best["dev"]]
    assert re.search(r"^Test scores of its seeds: [\d.]+$", output, re.M)
    (model,) = re.findall(r"^Model of seed 0, the best on dev: (.*)$", output, re.M)
    assert Path(model).parent.name == stage.fingerprint[:20] and f"predict.py --model {model} --texts new.csv" in output


@pytest.mark.slow
@pytest.mark.long
def test_two_sweeps_at_once_on_one_root_train_nothing_twice(data, tmp_path):
    empty_store(tmp_path)
    command = [sys.executable, str(Path(__file__).with_name("two_sweeps.py")), str(data), str(tmp_path)]
    kept = {"env": environment(PYTHONPATH=os.environ["PYTHONPATH"]), "text": True}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kept) for _ in range(2)]
    said = [each.communicate(timeout=900)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    scores = {line for text in said for line in text.splitlines() if line.startswith("found")}
    assert len(scores) == 1, "both have all results"
    assert (tmp_path / "notes").read_text().count("begun") == 4, "two points, two stages"


def flow_of(data: Path, root: Path) -> Flow:
    """Return the flow that the command line of `arguments` comes to."""
    found = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    return open_flow(found, Place(root=str(root / "tlm")), Cluster())


def built(line: str) -> Recipe:
    """Run a printed recipe."""
    names: dict = {"replace": replace, "recipe_for": recipe_for, "Schedule": Schedule}
    exec(line, names)
    return names["recipe"]


def test_points_that_come_to_the_same_training_are_one_trial(data, tmp_path):
    space = Space({"k": (0, 5), "rho1": (0, 3), "rho2": (20.0,), "method": ("bm25", "random")})
    points = list(space.points())
    tried = [space.recipe(TINY_RECIPE, point) for point in points]
    assert len(tried) == 8 and {recipe.depth for recipe in tried} == {5}
    assert sum(recipe.uses_general for recipe in tried) == 2
    trials = Trials(space=space, bases={"topics": TINY_RECIPE}, flow=flow_of(data, tmp_path))
    assert len(list(trials.distinct(points))) == 3


def test_a_sweep_trains_the_tasks_that_it_is_told(data, tmp_path):
    flow, space = flow_of(data, tmp_path), Space({"k": [5]})
    for task in ("topics", f"{data}/tasks/topics/"):
        flow = replace(flow, task_root="" if "/" in task else flow.task_root)
        trial = Trials(space=space, bases={task: TINY_RECIPE}, flow=flow, seeds=2).trial({"k": 5})
        assert [training.seed for training in trial.stages] == [0, 1]
        (read,) = {s.parameters["digests"] for last in trial.lasts for s in last.upstream() if s.name == "task"}
        assert read == read_task("topics", task_root=str(data / "tasks")).digests
    nosuch = Trials(space=space, bases={"nosuch": TINY_RECIPE}, flow=replace(flow, task_root=""))
    with pytest.raises(ValueError, match="task 'nosuch': known names are"):
        nosuch.trial({"k": 5})


def test_a_sweep_of_other_data_another_metric_or_budget_is_another_sweep(data, tmp_path):
    flow, space = flow_of(data, tmp_path), Space({"k": (5, 7)})
    first = Trials(space=space, bases={"topics": TINY_RECIPE}, flow=flow)
    fewer = open_corpus(f"{data}/corpus/part-0.parquet", column="text")
    others = [
        replace(first, flow=replace(flow, corpus=fewer)),
        replace(first, flow=replace(flow, metric="accuracy")),
        replace(first, fit=lambda recipe, task: replace(recipe, rho2=1.0)),
        replace(first, seeds=2),
        replace(first, space=Space({"k": (5, 8)})),
        replace(first, space=replace(space, depth=9)),
    ]
    assert len({first.key, *(other.key for other in others)}) == 7
    moved = replace(flow, execution=replace(flow.execution, root="elsewhere", workers=3))
    assert replace(first, flow=moved).key == first.key


def test_the_recipe_of_a_folder_of_a_known_task_is_made_from_the_same_base():
    best = replace(recipe_for("imdb", "small"), k=77)
    found = Swept(trials=[{"dev": 50.0}], parameters=(), best={"/data/imdb": best}, result={"dev": 50.0}, steps=0)
    assert built(best_recipe(found, "/data/imdb")) == best


def test_the_best_recipe_is_python_that_makes_it():
    base = Changes(steps=40, precision="fp32").recipe("docstrings", Flow(execution=Execution(root="")))
    space = Space({"k": (5, 7, 9), "rho1": (3, 1), "stage_two.learning_rate": (5e-4,), "method": ("bm25", "random")})
    best = space.recipe(base, {"k": 9, "rho1": 1, "stage_two.learning_rate": 5e-4, "method": "random"})
    trials = [{"dev": 50.0}, {"dev": 48.0}, {"dev": None}, {"dev": None, "stopped_step": 5}]
    result = {"dev": 50.0, "low": 49.0, "high": 51.0}
    found = Swept(trials=trials, parameters=(), best={"docstrings": best}, result=result, steps=0)
    line = best_recipe(found, "docstrings")
    of_three = "best of 3 trials on dev; its dev score is optimistic"
    assert line.endswith(f"# dev 50.00 (95 % interval 49.00 to 51.00), {of_three}") and "method='random'" in line
    assert built(line) == best
    assert best_recipe(replace(found, result={"dev": 50.0}), "docstrings").endswith(f"# dev 50.00, {of_three}")
