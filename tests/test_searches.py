"""Sweeps on Ray Tune: any field, several seeds, what a search costs and finds, what is never done twice."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from optuna.trial import TrialState
from ray import tune
from ray.tune.schedulers import FIFOScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search import Searcher
from small import small_flow, small_recipe
from tracked import empty_store

from tlm_ray import Limits, Space, Trials, plain_errors, storage, sweep
from tlm_ray.compute import Compute
from tlm_ray.report.sweeps import sort_trials, sweep_csv, sweep_markdown
from tlm_ray.retrieval.methods import Bm25, Random
from tlm_ray.runs.recipes.space import Point, read_values
from tlm_ray.runs.stages.registry import noted
from tlm_ray.runs.sweeps import sweeping
from tlm_ray.runs.sweeps.following import Budget, Follow, begin
from tlm_ray.runs.sweeps.searches import Distinct, optuna_search, scheduler_named
from tlm_ray.runs.sweeps.sweeping import _shared, _with_data, points_of
from tlm_ray.runs.sweeps.trial import CHARGED, DONE, _Reports
from tlm_ray.runs.sweeps.tuning import Tuning, _recorded, _row
from tlm_ray.runs.tracking.tracker import Tracker
from tlm_ray.training.launching.errors import TrainingStopped
from tlm_ray.training.loop.optimizers import AdamW


@pytest.fixture
def trials(data, tmp_path):
    """Return a maker of a sweep's trials on the small data."""

    def make(values, *, seeds=1, root="root", **changes):
        flow = small_flow(data, tmp_path / root, side_by_side=2)
        return Trials(space=Space(values), bases={"topics": small_recipe(**changes)}, flow=flow, seeds=seeds)

    return make


def swept(trials, tmp_path, **options):
    return sweep(trials, name="s", out=f"{tmp_path}/out", tracking_uri=empty_store(tmp_path), **options)


def records(folder: Path) -> dict[str, int]:
    """Return the finished stages under a root and when each was."""
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("record.json")}


def made(folder: Path) -> Counter[str]:
    return Counter(Path(file).parts[-3] for file in records(folder))


def test_any_field_of_a_recipe_is_a_path():
    base = small_recipe()
    space = Space(
        {"method": ["bm25", "random"], "stage_one.learning_rate": [1e-4], "stage_two.steps": [3], "k": [2, 9]}
    )
    first = space.recipe(base, next(space.points()))
    assert (first.method, first.stage_one.learning_rate, first.k, first.depth) == (Bm25(), 1e-4, 2, 9)
    assert (first.stage_two.steps, first.stage_two.warmup_steps) == (3, 0), "warm-up in proportion"
    for paths in (("warmup_steps", "steps"), ("steps", "warmup_steps")):
        point = {f"stage_two.{path}": {"warmup_steps": 2, "steps": 12}[path] for path in paths}
        both = Space({path: [value] for path, value in point.items()}).recipe(base, point).stage_two
        assert (both.steps, both.warmup_steps) == (12, 2), "what is given is what is trained with"
    deep = Space(
        {"start.geometry.layers": [2], "method": [Bm25(b=0.5), Bm25()], "optimizer": [AdamW()], "rho1": [None]}
    )
    other = deep.recipe(base, next(deep.points()))
    assert (other.start.geometry.layers, other.method.b, other.rho1) == (2, 0.5, None)
    labels = [deep.labels(point) for point in deep.points()]
    assert len({each["method"] for each in labels}) == 2 and labels[0]["rho1"] == "none"
    assert [deep.point(each) for each in labels] == list(deep.points())


def test_fields_that_fit_only_together_are_set_together():
    base = small_recipe()
    positions = base.start.geometry.positions
    for task_tokens in (positions // 2, 2 * positions):
        for paths in (("start.geometry.positions", "task_tokens"), ("task_tokens", "start.geometry.positions")):
            point = {path: {"task_tokens": task_tokens}.get(path, 2 * positions) for path in paths}
            recipe = Space({path: [value] for path, value in point.items()}).recipe(base, point)
            assert (recipe.start.geometry.positions, recipe.task_tokens) == (2 * positions, task_tokens)
    sizes = {"start.geometry.width": 48, "start.geometry.heads": 3, "method": "bm25", "method.b": 0.5}
    recipe = Space({path: [value] for path, value in sizes.items()}).recipe(base, sizes)
    assert (recipe.start.geometry.width, recipe.start.geometry.heads, recipe.method) == (48, 3, Bm25(b=0.5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": [1]}, "rate: a Recipe has no 'rate'; it has scale, start, vocabulary, stage_one"),
        ({"stage_one.rate": [1]}, "stage_one.rate: a Schedule has no 'rate'; it has steps, batch_rows"),
        ({"k.x": [1]}, "k.x: its parent is 5 in this recipe, which has no fields"),
        ({"optimizer": ["adam"]}, "optimizer 'adam': would replace AdamW.*give such an object"),
        ({"rho2": ["much"]}, "rho2 'much': would replace 20; give a number"),
        ({"k": [5.5]}, "k 5.5: would replace 5; give whole numbers, also as ends of a range"),
        ({"vocabulary": [True]}, "vocabulary True: would replace 200; give a number"),
        ({"k": []}, "k: give at least one value"),
        ({"k": tune.randint(1, 9)}, "k: a grid needs lists"),
        ({"k": 5}, "k 5: give a list of values, or a range of Ray Tune"),
        ({"rho2": tune.sample_from(lambda _: 3)}, "rho2 .*: give a list of values, or a range of Ray Tune"),
        ({"method": "bm25"}, r"method 'bm25': is one value; give a list, such as \['bm25'\]"),
    ],
)
def test_a_space_that_cannot_be_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        space = Space(values)
        space.recipe(small_recipe(), next(space.points()))


def test_a_depth_that_all_points_share_is_refused_beside_values_of_it():
    with pytest.raises(ValueError, match="depth 50: has no effect, because its values are given; leave it out"):
        Space({"depth": [9, 20]}, depth=50)


def test_a_whole_number_may_be_given_as_4e3():
    recipe = Space({"vocabulary": [4e3], "rho2": [20]}).recipe(small_recipe(), {"vocabulary": 4e3, "rho2": 20})
    assert isinstance(recipe.vocabulary, int) and recipe.vocabulary == 4000


def test_values_are_read_from_a_command_line_as_ray_tunes():
    assert read_values("5,1e-3,bm25,none,true") == [5, 1e-3, "bm25", None, True]
    rate = read_values("1e-4..1e-2:log")
    assert (rate.lower, rate.upper, str(rate.sampler)) == (1e-4, 1e-2, "LogUniform")
    whole = read_values("2..9")
    assert {whole.sample() for _ in range(400)} == set(range(2, 10)), "both ends are among them"
    with pytest.raises(ValueError, match=r"'1\.\.x': a range must be LOW\.\.HIGH"):
        read_values("1..x")
    for wrong in ("9..2", "0..2:log"):
        with pytest.raises(ValueError, match=f"'{wrong}': LOW must be below HIGH, and above 0 on a log scale"):
            read_values(wrong)


def test_spaces_of_ray_tune_are_spaces():
    space = Space({"k": tune.grid_search([5, 9]), "method": tune.choice(["bm25", Random()]), "rho1": [2]})
    assert space.is_grid and len(list(space.points())) == 4
    assert space.ranges == {}
    ranges = {"a": tune.loguniform(1e-4, 1), "b": tune.qlograndint(1, 90, 2), "c": tune.uniform(0, 1), "d": [1]}
    assert Space(ranges).ranges == {"a": True, "b": True, "c": False}
    given = space.as_tune()
    assert given["k"].categories == [5, 9] and given["method"].categories == ["bm25", "random"]
    drawn = Space({"rho2": tune.loguniform(0.1, 10.0), "k": [5, 9]})
    assert not drawn.is_grid and drawn.as_tune()["rho2"] is drawn.values["rho2"]
    assert drawn.point({"rho2": 0.2, "k": 9}) == {"rho2": 0.2, "k": 9} and drawn.point({"rho2": 20.0, "k": 9}) is None


@pytest.mark.parametrize("values", [tune.quniform(0.1, 0.3, 0.1), tune.qloguniform(1e-4, 7e-4, 1e-4), tune.randn(0, 1)])
def test_all_that_a_range_draws_lies_in_its_space(values):
    space = Space({"rho2": values})
    for _, drawn in zip(range(200), space.draws(0), strict=False):
        assert space.point(space.labels(drawn)) == drawn
    assert Space({"rho2": tune.quniform(0.1, 0.3, 0.1)}).point({"rho2": 0.3001}) is None


def test_draws_are_the_same_for_a_seed_however_many_are_taken():
    ranges = Space({"rho2": tune.loguniform(0.1, 10.0), "k": [1, 2]})
    first, again = ranges.draws(0), ranges.draws(0)
    assert [next(first) for _ in range(3)] == [next(again) for _ in range(9)][:3]
    grid = Space({"k": [1, 2], "rho1": [1, 2, 3]})
    assert sorted(map(str, grid.draws(1))) == sorted(map(str, grid.points())), "of a grid each once"


@dataclass(frozen=True)
class Lost(Random):
    """A method with a mistake; it notes that it was met."""

    name = "lost"
    notes: str = ""

    def find(self, folder, inputs, search):
        with Path(self.notes).open("a") as notes:
            notes.write("met\n")
        raise IndexError("no such passage")


@dataclass(frozen=True)
class Broken(AdamW):
    """An optimizer with a mistake; it notes that it was met."""

    notes: str = ""

    def make(self, *arguments, **options):
        with Path(self.notes).open("a") as notes:
            notes.write("met\n")
        raise IndexError("no such group")


@pytest.mark.usefixtures("ray_cluster")
def test_a_grid_over_seeds_makes_shared_stages_once_and_is_a_result_grid(trials, tmp_path, capsys):
    grid = trials({"stage_two.learning_rate": [1e-3, 1e-2]}, seeds=2)
    found = swept(grid, tmp_path)
    counts = made(tmp_path / "root")
    assert (counts["neighbours"], counts["tokenizer"], counts["stage_one"], counts["stage_two"]) == (1, 1, 2, 4)
    assert len(found.trials) == 2
    best = max(found.trials, key=lambda trial: trial["dev"])
    assert found.result["dev"] == best["dev"] and best["low"] <= best["dev"] <= best["high"]
    said = capsys.readouterr().out
    assert said.count("\ntrial ") == 2 and "2 trials (2 trained now, 0 reused)" in said
    assert found.steps == 4 * 18 and "; 72 steps" in said
    assert not list((tmp_path / "root").rglob("progress.json")), "what was noted while they trained is gone"

    assert len(found.grid) == 2 and not found.grid.errors
    frame = found.grid.get_dataframe()
    assert sorted(frame["dev"]) == sorted(trial["dev"] for trial in found.trials)
    assert set(frame["config/stage_two.learning_rate"]) == {1e-3, 1e-2}
    assert found.grid.get_best_result().metrics["dev"] == best["dev"]
    folders = {Path(found.grid[i].path) for i in range(2)}
    assert len(folders) == 2 and all(folder.is_relative_to(tmp_path / "root" / "sweeps") for folder in folders)

    before = records(tmp_path / "root")
    again = swept(grid, tmp_path)
    assert again.grid is None and again.trials == found.trials, "nothing is left to train"
    assert records(tmp_path / "root") == before and "2 trials (0 trained now, 2 reused)" in capsys.readouterr().out
    client = mlflow.MlflowClient(empty_store(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("s").experiment_id])
    assert Counter(run.info.status for run in runs) == {"FINISHED": 5}, "a run per training, one of the sweep"
    assert sum("mlflow.parentRunId" in run.data.tags for run in runs) == 4


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_trial_that_fails_is_told_once_and_spoils_no_other(trials, tmp_path, capsys):
    broken = Broken(notes=f"{tmp_path}/notes")
    found = swept(trials({"optimizer": [broken, AdamW(), AdamW(betas=(0.9, 0.9))]}), tmp_path)
    assert sorted(trial["dev"] is None for trial in found.trials) == [False, False, True]
    assert "failed: " in (said := " ".join(capsys.readouterr().out.split())) and "IndexError: no such group" in said
    assert (tmp_path / "notes").read_text() == "met\n", "what every retry would meet is met once"
    client = mlflow.MlflowClient(empty_store(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("s").experiment_id])
    assert Counter(run.info.status for run in runs)["FINISHED"] == 3
    with pytest.raises(TrainingStopped, match="sweep s: no trial finished; the lines of its trials say why"):
        swept(trials({"optimizer": [broken]}), tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_data_that_cannot_be_made_is_tried_once_and_fails_only_the_trials_that_need_it(trials, tmp_path):
    lost = Lost(notes=f"{tmp_path}/notes")
    found = swept(trials({"method": ["random", lost], "rho1": [1, 2]}), tmp_path)
    assert [(trial["method"] == "random", trial["dev"] is not None) for trial in found.trials].count((True, True)) == 2
    assert sum(trial["dev"] is None for trial in found.trials) == 2 and len(found.trials) == 4
    assert (tmp_path / "notes").read_text() == "met\n"
    with pytest.raises(IndexError, match="no such passage"):
        swept(trials({"method": [lost]}), tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_ends_where_its_budget_is_spent_and_goes_on_with_a_larger_one(trials, tmp_path):
    grid = trials({"rho1": [1, 2, 3]})
    grid = replace(grid, flow=replace(grid.flow, execution=replace(grid.flow.execution, side_by_side=1)))
    first = swept(grid, tmp_path, limits=Limits(trials=1))
    (spent,) = first.grid.get_dataframe()["hours"]
    assert len(first.trials) == 1 and 0 < spent < 1
    found = swept(grid, tmp_path, limits=Limits(money=spent * 2.02, price=2.0))
    assert sum(trial["dev"] is not None for trial in found.trials) == 1, "another costs more than a hundredth of it"
    whole = swept(grid, tmp_path, limits=Limits(hours=spent * 100))
    assert len(whole.trials) == 3 and all(trial["dev"] is not None for trial in whole.trials)
    with pytest.raises(ValueError, match="money and price: give both"):
        Limits(money=3.0)
    with pytest.raises(ValueError, match="--search random needs --trials N"):
        swept(grid, tmp_path, search="random")


class StopsMost(FIFOScheduler):
    """Stops every trial but one at its second evaluation."""

    def on_trial_result(self, tune_controller, trial, result):
        stops = trial.config["rho1"] != 2 and result["evaluation"] == 2
        return TrialScheduler.STOP if stops else TrialScheduler.CONTINUE


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_trial_that_a_scheduler_stops_is_no_result_and_holds_no_lock(trials, tmp_path, capsys):
    grid = trials({"rho1": [1, 2, 3]})
    found = swept(grid, tmp_path, scheduler=StopsMost())
    stopped = [trial for trial in found.trials if trial["dev"] is None]
    assert {trial["rho1"] for trial in stopped} == {1, 3} and {trial["stopped_step"] for trial in stopped} == {8}
    assert found.steps == 8 + 18 + 8 and "stopped at evaluation 2" in capsys.readouterr().out
    assert made(tmp_path / "root")["stage_two"] == 1, "a training that was stopped is no result"
    assert not list((tmp_path / "root" / "locks").rglob("*.json")), "and holds no lock"
    every = swept(grid, tmp_path)
    assert all(trial["dev"] is not None for trial in every.trials), "a later grid makes the others whole"
    assert all(trial in every.trials for trial in found.trials if trial["dev"] is not None)


class StopsLong(FIFOScheduler):
    """Stops a trial of many steps at its first evaluation."""

    def on_trial_result(self, tune_controller, trial, result):
        return TrialScheduler.STOP if trial.config["stage_one.steps"] > 100 else TrialScheduler.CONTINUE


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_stopped_trial_of_several_workers_frees_them_for_the_next_point(trials, tmp_path):
    grid = trials({"stage_one.steps": [50_000, 12]})
    compute = Compute(workers=2, resources={"CPU": 1.0})
    execution = replace(grid.flow.execution, compute=compute, side_by_side=1)
    found = swept(replace(grid, flow=replace(grid.flow, execution=execution)), tmp_path, scheduler=StopsLong())
    assert {trial["stage_one.steps"]: trial["dev"] is None for trial in found.trials} == {12: False, 50_000: True}


def test_ashas_last_report_comes_after_the_record():
    asha = scheduler_named("asha", 18)
    assert (asha._max_t, asha._reduction_factor) == (19, 3) and asha._brackets[0]._rungs[-1][0] == 2


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_scheduler_and_callbacks_of_ray_tune_are_taken_as_they_are(trials, tmp_path):
    class Counted(tune.Callback):
        """Counts reports; sweeps are pickled, so it counts in a file."""

        def on_trial_result(self, iteration, trials, trial, result, **info):
            with (tmp_path / "reports").open("a") as file:
                file.write(f"{result['evaluation']} ")

    stopper = MedianStoppingRule(time_attr="evaluation", grace_period=1, min_samples_required=2)
    found = swept(trials({"rho1": [1, 2]}), tmp_path, scheduler=stopper, callbacks=[Counted()])
    assert len(found.trials) == 2 and (tmp_path / "reports").read_text().split().count("1") == 2


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_successive_halving_takes_a_third_of_the_steps_and_its_short_trainings_are_no_results(trials, tmp_path):
    long = replace(small_recipe().stage_one, steps=27, evaluate_every=9)
    grid = trials({"rho1": [1, 2, 3], "rho2": [0.0, 5.0, 20.0]}, stage_one=long)
    whole = sum(grid.trial(point).steps for point in grid.space.points())
    found = swept(grid, tmp_path, scheduler="halving")
    done = [trial for trial in found.trials if trial["dev"] is not None]
    assert len(found.trials) == 9 and len(done) == 1 and found.steps <= 0.4 * whole
    stopped = sorted(trial["stopped_step"] for trial in found.trials if trial["dev"] is None)
    assert stopped == [4] * 6 + [11] * 2
    assert made(tmp_path / "root")["stage_two"] == 9 + 3 + 1


class Points:
    """Trials whose keys are their points; some points cannot be trained."""

    def __init__(self, space, refused=lambda point: False):
        self.space, self.refused = space, refused

    def key_of(self, point):
        if self.refused(point):
            raise ValueError("too large")
        return str(point)


def suggested(points: Points, score: Callable[[Point], float], *, count: int, seed: int) -> tuple[list[Point], Any]:
    """Run a search with Optuna to its end; return its points, and Optuna's study."""
    searcher = optuna_search(seed=seed, trials=count, known=[])
    search = Distinct(searcher, points, known={})
    search.set_search_properties("dev", "max", points.space.as_tune())
    seen = []
    while len(seen) < count and (point := search.suggest(f"trial-{len(seen)}")) != Searcher.FINISHED:
        search.on_trial_complete(f"trial-{len(seen)}", {"dev": score(point)})
        seen.append(point)
    return seen, searcher._ot_study


def test_optuna_finds_the_best_of_24_in_half_the_trials_and_repeats_none():
    space = Space({"k": [1, 5, 20], "rho1": [1, 3], "rho2": [0.0, 20.0], "method": ["bm25", "random"]})

    def score(point):
        return point["k"] + 3 * point["rho1"] - point["rho2"] / 10 + 4 * (point["method"] == "bm25")

    ranks = []
    for seed in range(10):
        seen, _ = suggested(Points(space), score, count=12, seed=seed)
        assert len(seen) == 12 == len(set(map(str, seen)))
        ranks.append(sum(score(point) > max(map(score, seen)) for point in space.points()))
    assert sorted(ranks)[len(ranks) // 2] == 0, "the median seed finds the best itself"
    assert max(ranks) <= 3


def test_optuna_is_told_no_number_for_a_point_that_cannot_be_trained(capsys):
    """Of a metric whose scores go to -100, such as matthews, any number would do for a good one."""
    points = Points(Space({"rho2": tune.uniform(0.0, 10.0)}), lambda point: point["rho2"] > 5)
    _, study = suggested(points, lambda point: -90.0 + point["rho2"], count=20, seed=0)
    told = [trial.value for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert len(told) == 20 and all(value <= -85 for value in told)
    refused = [
        trial.params["rho2"] > 5 for trial in study.trials if trial.state in (TrialState.PRUNED, TrialState.FAIL)
    ]
    assert refused and all(refused) and len(refused) < 40, "half of the space is refused, not most suggestions"


def test_optuna_ends_a_grid_some_of_whose_points_cannot_be_trained(capsys):
    points = Points(Space({"k": [1, 2, 3, 4]}), lambda point: point["k"] == 3)
    seen, _ = suggested(points, lambda point: point["k"], count=9, seed=0)
    assert sorted(point["k"] for point in seen) == [1, 2, 4]
    assert capsys.readouterr().out.count("no trial of") == 1, "said once"


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_optuna_goes_on_where_it_was_killed_and_is_told_what_is_recorded(trials, tmp_path, capsys):
    values = {"rho1": [1, 2, 3], "rho2": tune.loguniform(1.0, 30.0)}
    first = swept(trials(values), tmp_path, search="optuna", limits=Limits(trials=2))
    before = records(tmp_path / "root")
    (noted,) = (tmp_path / "root" / "experiments").glob("*.json")
    assert len(json.loads(noted.read_text())["points"]) == 2
    more = swept(trials(values), tmp_path, search="optuna", limits=Limits(trials=3))
    points = [(trial["rho1"], trial["rho2"]) for trial in first.trials]
    assert sorted((trial["rho1"], trial["rho2"]) for trial in more.trials[:2]) == sorted(points)
    assert len(more.trials) == 3 and before.items() <= records(tmp_path / "root").items()
    assert "3 trials (1 trained now, 2 reused)" in capsys.readouterr().out
    warm = swept(
        trials({**values, "rho1": [3, 2, 1]}), tmp_path, search="optuna", limits=Limits(trials=1), warm_start=True
    )
    assert len(warm.trials) == 4, "three that were recorded, told to Optuna, and one that is new"
    before = records(tmp_path / "root")
    again = swept(
        trials({**values, "rho1": [3, 2, 1]}), tmp_path, search="optuna", limits=Limits(trials=1), warm_start=True
    )
    assert len(again.trials) == 4 and records(tmp_path / "root") == before, "the same search again trains nothing"
    more = swept(
        trials({**values, "rho1": [3, 2, 1]}), tmp_path, search="optuna", limits=Limits(trials=2), warm_start=True
    )
    assert len(more.trials) == 5, "what others trained is none of its trials"


def test_what_a_searcher_suggests_counts_as_reused_if_it_was_recorded_before(trials, tmp_path):
    made = trials({"stage_two.learning_rate": [1e-3, 1e-2, 1e-1]})
    first, second, third = (made.trial(point) for point in made.space.points())
    root = made.flow.execution.root
    tracker = Tracker.start("s", uri=empty_store(tmp_path), root=root)

    def record(*stages):
        for stage in stages:
            storage.write_record(f"{stage.folder(root)}/record.json", {"recipe": stage.recipe, "facts": {}})

    begun, there = {}, set()
    record(first.trained[0], second.trained[1])
    begin(begun, there, first, made, tracker, "key")
    record(*first.trained)  # stage one is shared
    begin(begun, there, second, made, tracker, "key")
    begin(begun, there, third, made, tracker, "key")
    assert there == {first.trained[0].fingerprint, second.trained[1].fingerprint}
    assert list(begun.values()) == [first, second, third]


@pytest.fixture
def tuning(trials, tmp_path):
    """Return a maker of a sweep under way that may cost some hours; nothing of it is trained."""

    def make(values, hours, scheduler="halving", count=0):
        made = trials(values)
        tracker = Tracker.start("s", uri=empty_store(tmp_path), root=made.flow.execution.root)
        limits = Limits(hours=hours, trials=count)
        return Tuning(trials=made, key="key", tracker=tracker, limits=limits, scheduler=scheduler, callbacks=[])

    return make


def test_reused_trials_cost_hours_too(tuning):
    own = tuning({"k": [5, 4]}, hours=1.0)
    root = own.root
    for point in own.trials.space.points():
        for stage in own.trials.trial(point).trained:
            facts = {"seconds": 900, "history": [{"step": 1, "dev": 50.0}], "dev": 50.0}
            storage.write_record(f"{stage.folder(root)}/record.json", {"recipe": stage.recipe, "facts": facts})
    first, second = own.trials.space.points()
    own.reuse([first])
    assert not own.budget.stop_all(), "two stages of 15 minutes"
    own.reuse([second], own=False)
    assert not own.budget.stop_all(), "others have paid for it"
    own.reuse([second])
    assert own.budget.stop_all()


def test_a_sweep_whose_budget_ends_before_its_first_trial_is_told_in_one_message(trials, tmp_path, monkeypatch, capsys):
    made = trials({"k": [5]})
    tracker = Tracker.start("s", uri=empty_store(tmp_path), root=made.flow.execution.root)
    monkeypatch.setattr(sweeping, "opened", lambda *_, **__: (made.flow, tracker))
    monkeypatch.setattr(sweeping, "_with_data", lambda own, points, **_: points)
    monkeypatch.setattr(Tuning, "train", lambda own, points: own.budget.charge({"stage": 1.5}))
    with pytest.raises(SystemExit) as ended, plain_errors():
        swept(made, tmp_path, limits=Limits(hours=1.0))
    assert ended.value.code == 2
    said = "error sweep s: no trial finished before its hours or money were spent; give more to go on"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("reused", [True, False])
def test_a_stage_that_trials_share_costs_its_hours_once(tuning, monkeypatch, reused):
    own, reported = tuning({"stage_two.learning_rate": [1e-4, 1e-3, 1e-2]}, hours=0.66), []
    monkeypatch.setattr(tune, "report", reported.append)
    for point in own.trials.space.points():
        reports, trial = _Reports(own.trials.flow.execution.compute), own.trials.trial(point)
        for stage in trial.trained:
            seconds = 1800 if stage.name == "stage_one" else 180
            facts = {"seconds": seconds, "steps": 9, "history": [{"step": 9, "dev": 50.0}], "dev": 50.0}
            record = {"recipe": stage.recipe, "facts": facts}
            storage.write_record(f"{stage.folder(own.root)}/record.json", record)
            reports.ended(stage, record)
        if reused:
            own.reuse([point])
        for result in reported if not reused else []:
            own.budget(trial.words, result)
    assert reported[-1]["hours"] == pytest.approx(0.55), "of one trial"
    assert sum(own.budget.hours.values()) == pytest.approx(0.5 + 3 * 0.05) and not own.budget.stop_all()


def test_a_trial_that_goes_on_with_anothers_stage_gives_no_hours_back():
    budget = Budget(1.0)
    for hours in (0.9, 0.1):
        budget("id", {CHARGED: {"stage": hours}})
    assert budget.hours == {"stage": 0.9}


def follow_to_the_end(own, ends):
    """Run a sweep's trials, one result each: their points, results, and how Ray Tune's callbacks are told."""
    follow = Follow(own.trials, 1.0, own.tracker, own.begun, own.there, own.key, own.budget)
    for point, result in ends:
        trained = own.trials.trial(point).trained
        trial = SimpleNamespace(trial_id=str(point), config=own.trials.space.labels(point), last_result=result)
        follow.on_trial_start(1, [], trial)
        own.budget(trial.trial_id, {CHARGED: {stage.fingerprint: result["hours"] / 2 for stage in trained}})
        if DONE in result:
            for stage in trained:
                facts = {"seconds": 900, "steps": 9, "history": [{"step": 9, "dev": 50.0}], "dev": 50.0}
                storage.write_record(f"{stage.folder(own.root)}/record.json", {"recipe": stage.recipe, "facts": facts})
        if DONE in result or not own.budget.stop_all():
            follow.on_trial_complete(2, [], trial)
    follow.on_experiment_end([])


STOPPED = {"steps": 4, "dev": 41.0, "evaluation": 1, "hours": 0.25}
COMPLETE = {DONE: 1, "dev": 50.0, "hours": 0.5}


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_the_hours_of_stopped_trials_are_spent_for_a_repeated_sweep_too(tuning, monkeypatch, search):
    values = {"stage_one.learning_rate": [1e-3, 1e-2, 1e-1]}
    first = tuning(values, hours=1.0, scheduler="asha", count=9)
    one, two, three = first.trials.space.points()
    cut = STOPPED | {"hours": 0.3}
    follow_to_the_end(first, [(one, COMPLETE), (two, STOPPED), (three, cut)])
    assert first.budget.stop_all()
    asked = []
    monkeypatch.setattr(Tuning, "search", lambda self, searcher, count, share=1.0: asked.append((searcher, count)))
    monkeypatch.setattr(Tuning, "make_shared", lambda *_: None)

    def run(hours):
        own = tuning(values, hours=hours, scheduler="asha", count=9)
        own.train([one, two, three]) if search == "grid" else own.suggest("optuna", False)
        return own

    again = run(1.0)
    assert not asked and [row["dev"] for row in again.table()] == [50.0, None]
    assert (
        again.table()[1]["stopped_dev"] == 41.0 and again.steps == first.begun[again.trials.trial(one).words].steps + 4
    )
    more = run(9.0)
    ((searcher, count),) = asked
    if search == "optuna":
        assert searcher.first == [dict(more.trials.space.labels(three))], "which the budget ended, not the scheduler"
        assert (sorted(searcher.scores.values()), count) == ([41.0, 50.0], 7)


def test_a_point_that_was_stopped_is_trained_by_a_sweep_that_stops_none(tuning, monkeypatch):
    values, asked = {"stage_one.learning_rate": [1e-3, 1e-2]}, []
    first = tuning(values, hours=0, scheduler="asha", count=2)
    one, two = first.trials.space.points()
    follow_to_the_end(first, [(one, COMPLETE), (two, STOPPED)])
    monkeypatch.setattr(Tuning, "search", lambda self, searcher, count: asked.append((searcher.first, count)))
    monkeypatch.setattr(Tuning, "make_shared", lambda *_: None)
    for scheduler in ("asha", "none"):
        tuning(values, hours=0, scheduler=scheduler, count=2).suggest("optuna", False)
    assert asked == [([dict(first.trials.space.labels(two))], 1)]


def test_a_killed_sweep_has_kept_its_hours(tuning, monkeypatch):
    own, now = tuning({"k": [5]}, hours=1.0), [0.0]
    monkeypatch.setattr("tlm_ray.runs.sweeps.following.time.monotonic", lambda: now[0])
    follow = Follow(own.trials, 1.0, own.tracker, own.begun, own.there, own.key, own.budget)
    trial = SimpleNamespace(trial_id="id", config={"k": 5})
    follow.on_trial_start(1, [], trial)
    for now[0], hours in ((10.0, 0.2), (70.0, 0.4), (80.0, 0.5)):
        own.budget("id", {CHARGED: {"stage": hours}})
        follow.on_trial_result(1, [], trial, {})
    assert tuning({"k": [5]}, hours=1.0).budget.hours == {"stage": 0.4}, "of the last minute it may forget"


def test_successive_halving_ends_where_its_budget_does(tuning, monkeypatch):
    own, shares = tuning({"k": [1, 2, 3, 4]}, hours=1.0), []

    def train(points, share):
        shares.append((len(points), share))
        for point in points[:2]:  # the budget is spent before the others begin
            own.rows[own.trials.trial(point, share).words] = {"dev": 50.0}
        own.budget.hours["trial"] = 1.5

    monkeypatch.setattr(own, "train", train)
    own.halve(list(own.trials.space.points()))
    assert shares == [(4, pytest.approx(1 / 9))]


def test_points_that_cannot_be_trained_do_not_end_a_search_of_others(tuning):
    drawn = tuning({"stage_two.warmup_steps": read_values("0..40")}, hours=0)
    limits = Limits(trials=4)
    for points in (points_of(drawn.trials, "optuna", limits), drawn._drawn()):
        assert len(points) in (4, 9) and all(point["stage_two.warmup_steps"] <= 6 for point in points)
    assert drawn._evaluations() == 3 + 2
    with pytest.raises(ValueError, match=r"warmup_steps \d+: must lie between 0 and steps"):
        points_of(drawn.trials, "random", limits)  # whose points are those to train
    listed = tuning({"stage_two.warmup_steps": [1, 99]}, hours=0).trials
    (one,) = points_of(listed, "optuna", limits)
    assert {stage.name for stage in _shared(listed, [one], suggests=True)} >= {"neighbours", "blocks"}
    assert _recorded(listed, [], drawn.tracker.records) == []
    with pytest.raises(ValueError, match="warmup_steps 99: must lie between 0 and steps"):
        points_of(tuning({"stage_two.warmup_steps": read_values("99..100")}, hours=0).trials, "optuna", limits)


def test_a_point_whose_process_cannot_start_stays_in_the_table_as_failed(tuning, monkeypatch):
    own = tuning({"k": [5, 4]}, hours=0)
    own.scheduler = "none"
    lost = SimpleNamespace(config={"k": 5}, metrics={}, error=OSError("lost"))
    unspent = SimpleNamespace(config={"k": 4}, metrics={}, error=None)
    monkeypatch.setattr(own, "_tuner", lambda *_: SimpleNamespace(fit=lambda: [lost, unspent]))
    own.search(None, 2)
    assert [(row["k"], row["dev"]) for row in own.table()] == [(5, None)], "the other began not, for want of hours"


@pytest.mark.parametrize("workers", [1, 2])
def test_only_trials_that_train_in_their_own_process_share_it(tuning, monkeypatch, workers):
    own, freed = tuning({"k": [5, 4]}, hours=0), []
    execution = replace(own.trials.flow.execution, compute=Compute(workers=workers))
    own.trials = replace(own.trials, flow=replace(own.trials.flow, execution=execution))
    monkeypatch.setattr(tune, "Tuner", lambda function, **how: SimpleNamespace(**how))
    monkeypatch.setattr("tlm_ray.runs.sweeps.following.ray_private.free_orphans", lambda: freed.append(1))
    tuner = own._tuner(None, 2, 1.0)
    assert tuner.tune_config.reuse_actors is (workers == 1)
    (follow,) = tuner.run_config.callbacks
    follow.on_step_end(1, [])
    follow.on_step_end(2, [])
    assert len(freed) == workers - 1, "not at every step"


def test_a_trial_that_failed_after_an_evaluation_is_not_stopped(tuning):
    trial = tuning({"k": [5]}, hours=0).trials.trial({"k": 5})
    reported = {"steps": 4, "dev": 40.0}
    stopped, failed = (_row(trial, SimpleNamespace(metrics=reported, error=error)) for error in (None, OSError("lost")))
    assert stopped == {"k": 5, "dev": None, "stopped_step": 4, "stopped_dev": 40.0}
    assert failed == {"k": 5, "dev": None}


def test_tables_tell_stopped_trials_from_failed_ones():
    stopped = {"k": 5, "dev": None, "stopped_step": 50, "stopped_dev": 40.5}
    trials = sort_trials([{"k": 5, "dev": None}, stopped, {"k": 5, "dev": 41.0, "low": 40.0, "high": 42.0}], ["k"])
    assert [line["stopped_dev"] for line in csv.DictReader(sweep_csv(trials).splitlines())] == ["", "40.5", ""]
    assert [row.split(" | ")[2:] for row in sweep_markdown(trials).splitlines()[2:5]] == [
        ["41.00", "40.00", "42.00", "–", "– |"],
        ["stopped", "–", "–", "50", "40.50 |"],
        ["failed", "–", "–", "–", "– |"],
    ]


def test_trainings_that_all_points_share_are_made_before_any_trial(tuning, monkeypatch):
    asked = []
    monkeypatch.setattr("tlm_ray.runs.sweeps.tuning.make", lambda stages, root, **how: asked.append([*stages]))
    own = tuning({"stage_two.learning_rate": [1e-3, 1e-2]}, hours=0)
    points = list(own.trials.space.points())
    own.make_shared(points)
    ((shared,),) = asked
    assert shared.name == "stage_one" and own.made == {shared.fingerprint}
    (kept,) = noted(own.root)
    assert shared.folder("") in kept.stages, "or clean.py would delete it"
    own.make_shared(points[:1])
    tuning({"rho1": [1, 2]}, hours=0).make_shared([{"rho1": 1}, {"rho1": 2}])
    tuning({"stage_two.learning_rate": [1e-3, 1e-2]}, hours=1.0).make_shared(points)
    assert len(asked) == 1, "one trial, or two stage ones, have nothing to wait for; hours are kept by Ray Tune"


def test_the_data_stages_of_a_sweep_are_noted_before_they_are_made(tuning, monkeypatch):
    own, kept = tuning({"method": ["bm25", "random"]}, hours=0), []
    monkeypatch.setattr(sweeping, "make", lambda stages, root, **how: kept.extend(noted(root)))
    points = list(own.trials.space.points())
    assert _with_data(own, points, suggests=False) == points
    data = {stage.folder("") for stage in _shared(own.trials, points, suggests=False)}
    assert [one.stages for one in kept] == [data], "or clean.py would delete them"


@pytest.mark.parametrize(
    ("search", "scheduler", "methods"),
    [("grid", "none", 1), ("random", "none", 1), ("random", "halving", 1), ("optuna", "none", 3)],
)
def test_data_of_a_whole_grid_is_made_only_for_a_searcher_that_suggests(
    trials, tmp_path, monkeypatch, search, scheduler, methods
):
    made, asked = trials({"method": ["bm25", "random", "rake"]}), []
    tracker = Tracker.start("s", uri=empty_store(tmp_path), root=made.flow.execution.root)
    monkeypatch.setattr(sweeping, "opened", lambda *_, **__: (made.flow, tracker))
    monkeypatch.setattr(sweeping, "make", lambda stages, root, **how: asked.extend(stages))
    for way in ("halve", "train", "suggest"):
        monkeypatch.setattr(Tuning, way, lambda *_: None)
    with pytest.raises(TrainingStopped):
        swept(made, tmp_path, search=search, scheduler=scheduler, limits=Limits(trials=1))
    assert sum(stage.name == "neighbours" for stage in asked) == methods
