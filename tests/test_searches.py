"""Sweeps in this process: any field, several seeds, what a search costs and finds, what is never done twice."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import mlflow
import pytest
from optuna.trial import TrialState
from small import small_flow, small_recipe
from tracked import empty_store

from tlm_ray import Limits, Range, Space, Trials, sweep
from tlm_ray.report.sweeps import sort_trials, sweep_csv, sweep_markdown
from tlm_ray.retrieval.methods import Bm25, Random
from tlm_ray.runs import experiment
from tlm_ray.runs.flow import flow as pipeline
from tlm_ray.runs.recipes.space import Point, read_values
from tlm_ray.runs.sweeps.searches import Chosen, Halving, Suggested
from tlm_ray.training.optimizers import AdamW


@pytest.fixture
def trials(data, tmp_path, monkeypatch):
    """Return a maker of a sweep's trials on the small data, made in this process."""
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: execution)

    def make(values, *, seeds=1, root="root", **changes):
        flow = small_flow(data, tmp_path / root)
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
        ({"k": Range(low=1, high=9)}, "k: a grid needs lists"),
    ],
)
def test_a_space_that_cannot_be_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        space = Space(values)
        space.recipe(small_recipe(), next(space.points()))


def test_a_whole_number_may_be_given_as_4e3():
    recipe = Space({"vocabulary": [4e3], "rho2": [20]}).recipe(small_recipe(), {"vocabulary": 4e3, "rho2": 20})
    assert isinstance(recipe.vocabulary, int) and recipe.vocabulary == 4000


def test_values_are_read_from_a_command_line():
    assert read_values("5,1e-3,bm25,none,true") == [5, 1e-3, "bm25", None, True]
    assert read_values("1e-4..1e-2:log") == Range(low=1e-4, high=1e-2, log=True)
    whole = read_values("2..9")
    assert {whole.at(share / 100) for share in range(100)} == set(range(2, 10))
    with pytest.raises(ValueError, match=r"'1\.\.x': a range must be LOW\.\.HIGH"):
        read_values("1..x")


def test_draws_are_the_same_for_a_seed_however_many_are_taken():
    ranges = Space({"rho2": Range(low=0.1, high=10.0, log=True), "k": [1, 2]})
    first, again = ranges.draws(0), ranges.draws(0)
    assert [next(first) for _ in range(3)] == [next(again) for _ in range(9)][:3]
    grid = Space({"k": [1, 2], "rho1": [1, 2, 3]})
    assert sorted(map(str, grid.draws(1))) == sorted(map(str, grid.points())), "of a grid each once"


def test_a_grid_over_seeds_makes_shared_stages_once_and_has_an_interval(trials, tmp_path, alone, capsys):
    @dataclass(frozen=True)
    class Own(Random):
        """A method of a user's own."""

        name = "own"

    grid = trials({"method": ["bm25", Own()], "rho1": [1, 2], "stage_two.learning_rate": [1e-3, 1e-2]}, seeds=2)
    found = swept(grid, tmp_path)
    counts = made(tmp_path / "root")
    assert (counts["neighbours"], counts["tokenizer"], counts["stage_one"], counts["stage_two"]) == (2, 2, 8, 16)
    assert len(found.trials) == 8 and {trial["method"] for trial in found.trials} == {"bm25", "own"}
    best = max(found.trials, key=lambda trial: trial["dev"])
    assert found.result["dev"] == best["dev"] and best["low"] <= best["dev"] <= best["high"]
    said = capsys.readouterr().out
    assert said.count("\ntrial ") == 8 and "8 trials (8 trained now, 0 reused)" in said
    assert found.steps == 16 * 18 and "; 288 steps" in said

    before = records(tmp_path / "root")
    assert swept(grid, tmp_path).trials == found.trials
    assert records(tmp_path / "root") == before and "8 trials (0 trained now, 8 reused)" in capsys.readouterr().out


def test_a_trial_that_fails_is_told_and_spoils_no_other(trials, tmp_path, alone, capsys, monkeypatch):
    train = pipeline.train_stage

    def fail(job, *, followers):
        if getattr(job.settings, "rho1", None) == 2:
            raise RuntimeError("no memory")
        return train(job, followers=followers)

    monkeypatch.setattr(pipeline, "train_stage", fail)
    found = swept(trials({"rho1": [2, 1, 3]}), tmp_path)
    assert [trial["dev"] is None for trial in found.trials] == [True, False, False]
    assert "rho1 2: failed" in capsys.readouterr().out
    client = mlflow.MlflowClient(empty_store(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("s").experiment_id])
    assert Counter(run.info.status for run in runs) == {"FINISHED": 3, "FAILED": 1}
    with pytest.raises(RuntimeError, match="sweep s: no trial finished"):
        swept(trials({"rho1": [2]}), tmp_path)


def test_no_trial_begins_that_would_cost_more_than_the_sweep_may(trials, tmp_path, alone, capsys):
    grid = trials({"rho1": [1, 2, 3]})
    assert len(swept(grid, tmp_path, limits=Limits(trials=1)).trials) == 1
    spent = grid.hours([grid.trial(Chosen({"rho1": 1}))])
    assert 0 < spent < 1
    found = swept(grid, tmp_path, limits=Limits(money=spent * 2.0, price=2.0))
    assert len(found.trials) == 1 and "rho1 2 would cost more than the sweep may" in capsys.readouterr().out
    with pytest.raises(ValueError, match="money and price: give both"):
        Limits(money=3.0)
    with pytest.raises(ValueError, match="--search random needs --trials N"):
        swept(grid, tmp_path, search="random")


def test_successive_halving_takes_a_third_of_the_steps_and_its_short_trainings_are_no_results(trials, tmp_path, alone):
    long = replace(small_recipe().stage_one, steps=27, evaluate_every=9)
    grid = trials({"rho1": [1, 2, 3], "rho2": [0.0, 5.0, 20.0]}, stage_one=long)
    whole = sum(grid.trial(Chosen(point)).steps for point in grid.space.points())
    found = swept(grid, tmp_path, search="asha")
    done = [trial for trial in found.trials if trial["dev"] is not None]
    assert len(found.trials) == 9 and len(done) == 1 and found.steps <= 0.4 * whole
    stopped = sorted(trial["stopped_step"] for trial in found.trials if trial["dev"] is None)
    assert stopped == [4] * 6 + [11] * 2
    assert made(tmp_path / "root")["stage_two"] == 9 + 3 + 1
    every = swept(grid, tmp_path)
    assert all(trial["dev"] is not None for trial in every.trials), "a later grid makes the others whole"
    assert done[0] in every.trials


def test_points_that_a_short_training_does_not_tell_apart_all_go_on(trials, tmp_path, alone):
    long = replace(small_recipe().stage_one, steps=90, evaluate_every=30, warmup_steps=0)
    found = swept(trials({"stage_one.warmup_steps": [0, 4, 8]}, stage_one=long), tmp_path, search="asha")
    assert len(found.trials) == 3 and made(tmp_path / "root")["stage_one"] == 3, "a ninth of all three is one training"
    (best,) = (trial for trial in found.trials if trial["dev"] is not None)
    page = Path(f"{tmp_path}/out/s.html").read_text()
    assert f"stage_one.warmup_steps {best['stage_one.warmup_steps']}, 0.11 of the steps" in page, "told from the whole"


@pytest.mark.parametrize("metric", ["accuracy", "f1_accuracy"])
def test_a_metric_that_is_the_mean_of_two_is_swept(trials, tmp_path, alone, monkeypatch, metric):
    from tlm_ray.evaluation import scores

    monkeypatch.setitem(scores.OF_PAIRS, "f1_accuracy", (scores.METRICS["macro_f1"], scores.METRICS["accuracy"]))
    both = replace(scores.METRICS["accuracy"], name=metric)
    pair = trials({"rho1": [1, 2]})
    pair = replace(pair, flow=replace(pair.flow, metric=both))
    found = swept(pair, tmp_path)
    assert all(0 <= trial["dev"] <= 100 for trial in found.trials)


def test_what_goes_wrong_between_trials_is_raised_when_those_that_run_have_ended(trials, tmp_path, alone, monkeypatch):
    def next_one(self):
        if self.begun[0]:
            raise ValueError("nothing to choose from")
        return self._begin(0, 0)

    monkeypatch.setattr(Halving, "next", next_one)
    with pytest.raises(ValueError, match="nothing to choose from"):
        swept(trials({"rho1": [1, 2]}), tmp_path, search="asha")
    assert made(tmp_path / "root")["stage_two"] == 1


def rung(halving: Halving, scores: dict[int, float | None]) -> list[tuple[int, float]]:
    """Run a search whose points are numbers; return which began, and for which share of the steps."""
    begun = []
    while (chosen := halving.next()) is not None:
        begun.append((chosen.point["n"], chosen.share))
        halving.tell(chosen, scores[chosen.point["n"]])
    return begun


def test_the_best_third_goes_on():
    points = [{"n": n} for n in range(9)]
    begun = rung(Halving(points), {n: float(n) for n in range(9)})
    assert begun == [*((n, 1 / 9) for n in range(9)), (8, 1 / 3), (7, 1 / 3), (6, 1 / 3), (8, 1)]
    failed = rung(Halving(points[:2]), {0: None, 1: 5.0})
    assert failed == [(0, 1 / 9), (1, 1 / 9), (1, 1 / 3), (1, 1)]
    assert rung(Halving(points[:1]), {0: None}) == [(0, 1 / 9)]


def test_optuna_finds_the_best_of_24_in_half_the_trials_and_repeats_none():
    space = Space({"k": [1, 5, 20], "rho1": [1, 3], "rho2": [0.0, 20.0], "method": ["bm25", "random"]})

    def score(point):
        return point["k"] + 3 * point["rho1"] - point["rho2"] / 10 + 4 * (point["method"] == "bm25")

    ranks = []
    for seed in range(10):
        search, seen = Suggested(space, count=12, seed=seed, key=str), []
        while (chosen := search.next()) is not None:
            seen.append(chosen.point)
            search.tell(chosen, score(chosen.point))
        assert len(seen) == 12 == len(set(map(str, seen)))
        ranks.append(sum(score(point) > max(map(score, seen)) for point in space.points()))
    assert sorted(ranks)[len(ranks) // 2] == 0, "the median seed finds the best itself"
    assert max(ranks) <= 3


def test_optuna_goes_on_where_it_was_killed_and_is_told_what_is_recorded(trials, tmp_path, alone, capsys):
    values = {"rho1": [1, 2, 3], "rho2": Range(low=1.0, high=30.0, log=True)}
    first = swept(trials(values), tmp_path, search="optuna", limits=Limits(trials=2))
    before = records(tmp_path / "root")
    (journal,) = (tmp_path / "root" / "sweeps").glob("*.json")
    assert len(json.loads(journal.read_text())["points"]) == 2
    more = swept(trials(values), tmp_path, search="optuna", limits=Limits(trials=3))
    assert list(more.trials[:2]) == list(first.trials) and len(more.trials) == 3
    assert before.items() <= records(tmp_path / "root").items()
    assert "3 trials (1 trained now, 2 reused)" in capsys.readouterr().out
    other = swept(
        trials(values, seeds=1, root="root", weighting="paper"), tmp_path, search="random", limits=Limits(trials=1)
    )
    assert len(other.trials) == 1, "another recipe: nothing of it is known"
    warm = swept(
        trials({**values, "rho1": [3, 2, 1]}), tmp_path, search="optuna", limits=Limits(trials=1), warm_start=True
    )
    assert len(warm.trials) == 4, "three that were recorded, told to Optuna, and one that is new"
    before = records(tmp_path / "root")
    again = swept(
        trials({**values, "rho1": [3, 2, 1]}), tmp_path, search="optuna", limits=Limits(trials=1), warm_start=True
    )
    assert len(again.trials) == 4 and records(tmp_path / "root") == before, "the same search again trains nothing"
    drawn = {"rho2": Range(low=1.0, high=30.0)}
    swept(trials(drawn), tmp_path, search="random", limits=Limits(trials=2))
    told = swept(trials(drawn), tmp_path, search="optuna", limits=Limits(trials=1), warm_start=True)
    assert len(told.trials) == 3, "what was drawn at random is told too"


def test_optuna_skips_values_that_do_not_go_together(trials, tmp_path, alone, capsys):
    values = {"stage_two.warmup_steps": Range(low=0, high=12)}
    found = swept(trials(values), tmp_path, search="optuna", limits=Limits(trials=3))
    assert len(found.trials) == 3 and all(trial["dev"] is not None for trial in found.trials)


def test_tables_tell_stopped_trials_from_failed_ones():
    stopped = {"k": 5, "dev": None, "stopped_step": 50, "stopped_dev": 40.5}
    trials = sort_trials([{"k": 5, "dev": None}, stopped, {"k": 5, "dev": 41.0, "low": 40.0, "high": 42.0}], ["k"])
    assert [line["stopped_dev"] for line in csv.DictReader(sweep_csv(trials).splitlines())] == ["", "40.5", ""]
    assert [row.split(" | ")[2:] for row in sweep_markdown(trials).splitlines()[2:5]] == [
        ["41.00", "40.00", "42.00", "–", "– |"],
        ["stopped", "–", "–", "50", "40.50 |"],
        ["failed", "–", "–", "–", "– |"],
    ]


def suggested(space: Space, key: Callable[[Point], str], score: Callable[[Point], float], **options) -> Suggested:
    """Run a search to its end."""
    search = Suggested(space, key=key, **options)
    while (chosen := search.next()) is not None:
        search.tell(chosen, score(chosen.point))
    return search


def test_optuna_is_told_no_number_for_a_point_that_cannot_be_trained(capsys):
    """Of a metric whose scores go to -100, such as matthews, any number would do for a good one."""

    def key(point):
        if point["rho2"] > 5:
            raise ValueError("too large")
        return str(point)

    search = suggested(Space({"rho2": Range(low=0.0, high=10.0)}), key, lambda p: -90.0 + p["rho2"], count=20, seed=0)
    trials = search.tune._ot_study.trials
    told = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(told) == 20 and all(value <= -85 for value in told)
    refused = [trial.params["rho2"] > 5 for trial in trials if trial.state == TrialState.PRUNED]
    assert refused and all(refused) and len(refused) < 40, "half of the space is refused, not most suggestions"


def test_optuna_ends_a_grid_some_of_whose_points_cannot_be_trained(capsys):
    def key(point):
        if point["k"] == 3:
            raise ValueError("not 3")
        return str(point)

    search = suggested(Space({"k": [1, 2, 3]}), key, lambda point: float(point["k"]), count=9, seed=0)
    assert len(search.scores) == 2
