"""The plan of a run: who needs a stage, what it costs, and what is not known."""

import pytest

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.runs.planning.estimates import stage_seconds
from tlm_ray.runs.planning.plan import Wanted, plan_lines, show
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage


def stage(name, *inputs, lane="data", cost=None, **parameters):
    sources = {source.name: source for source in inputs}
    return Stage(name=name, version=1, parameters=parameters, inputs=sources, lane=lane, cost=cost or {},
                 make=lambda folder, inputs: {})  # fmt: skip


def record(stage, root, seconds=1.0, compute=None, facts=None):
    storage.write_record(
        storage.join(stage.folder(root), "record.json"),
        {
            "recipe": stage.recipe,
            "facts": (facts or {}) | ({"compute": (compute or Compute()).parts} if stage.lane == "train" else {}),
            "cost": dict(stage.cost),
            "seconds": seconds,
        },
    )


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def wanted():
    """Two rows of two tasks with two seeds; the first row needs no text of the corpus."""
    passages = stage("passages", cost={"seconds": 5.0})
    found = []
    for task in ("sciie", "[red]ag[/]"):
        labelled = stage("task", task=task, cost={"seconds": 1.0})
        blocks = {"alone": stage("blocks", labelled), "general": stage("blocks", labelled, passages)}
        for row, read in blocks.items():
            for seed in (0, 1):
                last = stage("stage_two", read, lane="train", seed=seed, cost={"flops": 6e10, "tokens": 10})
                found.append(Wanted(row=row, task=task, seed=seed, stage=last))
    return found


def test_each_stage_says_which_rows_tasks_and_seeds_need_it(tmp_path):
    lines = plan_lines(wanted(), Records(str(tmp_path)), compute=Compute())
    said = [(line.stage.name, line.needed_by) for line in lines]
    assert len(said) == 1 + 2 + 4 + 8
    assert ("passages", "general") in said and ("task", "sciie") in said
    assert ("blocks", "alone; sciie") in said and ("stage_two", "general; [red]ag[/]; seed 1") in said
    many = [Wanted(row=f"row {n}", task="t", seed=0, stage=wanted()[n % 3].stage) for n in range(9)]
    assert {line.needed_by for line in plan_lines(many, Records(str(tmp_path)), compute=Compute())} == {
        "all", "3 of 9 rows", "6 of 9 rows"
    }  # fmt: skip
    alone = plan_lines(wanted()[:1], Records(str(tmp_path)), compute=Compute())
    assert {line.needed_by for line in alone} == {"all"}


def test_the_time_of_trainings_is_unknown_until_one_is_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")  # so that this machine's CPUs do not matter
    show(wanted(), Execution(root=str(tmp_path), side_by_side=0))
    told = said(capsys)
    assert "0 of 15 stages cached, 15 to run: 8.00e+01 tokens, 4.80E11 FLOPs (6 x tokens x parameters)" in told
    assert told.endswith("time: unknown until one training on these resources is recorded under the root")
    print_once.cache_clear()
    show(wanted(), Execution(root=str(tmp_path), side_by_side=1), price=3600)
    told = said(capsys)
    assert "assuming 3e+11 FLOPs per second" in told and "7 s of other stages and 0.00 CPU hours" in told
    assert "cost 1.60 not included: 4 stages of unknown duration" in told, "the blocks"
    for each in wanted()[0].stage.upstream():
        record(each, str(tmp_path), 3.0 if each.lane == "train" else 1.0)
    show(wanted(), Execution(root=str(tmp_path), side_by_side=0), price=3600)
    told = said(capsys)
    assert "3 of 15 stages cached, 12 to run" in told and "[red]ag[/]" in told
    # 7 further trainings of 3 s; passages 5 s, another task 1 s and 3 blocks 1 s, as the recorded ones of their kind
    assert "about 30 s with 1 training at a time (a cluster may have room for more): 9 s of other stages" in told
    assert "0.01 CPU hours of training, cost 21.00" in told and "unknown" not in told
    show(wanted(), Execution(root=str(tmp_path), side_by_side=4))
    assert "about 15 s with 4 trainings at a time: 9 s" in said(capsys)


def test_a_training_whose_encoder_was_not_opened_has_no_estimate_and_spoils_none(tmp_path, capsys):
    root = str(tmp_path)
    known = stage("stage_two", lane="train", cost={"flops": 600.0, "tokens": 2})
    opened = stage("stage_two", known, lane="train", cost={"tokens": 2})
    record(known, root, 3.0)
    record(opened, root, 3.0)
    last = stage("stage_two", known, lane="train", cost={"tokens": 2}, other=1)
    show([Wanted(row="r", task="t", seed=0, stage=last)], Execution(root=root))
    told = said(capsys)
    assert told.endswith("not included: 1 stages of unknown duration")
    assert "0.00E0 FLOPs (6 x tokens x parameters), without those of encoders not opened yet" in told


def estimate(stage, root, compute=None):
    return stage_seconds([stage], Records(root), compute or Compute()).get(stage.fingerprint)


def test_a_training_takes_its_flops_at_the_rate_of_those_of_the_nearest_size_on_the_same_resources(tmp_path):
    root, gpu = str(tmp_path), Compute(resources={"CPU": 4.0, "GPU": 1.0})
    small, large = ({"flops": 1e3 * tokens * 6, "tokens": tokens} for tokens in (10, 40))
    large["flops"] *= 100
    for number, (cost, seconds, compute) in enumerate(
        [(small, 2.0, None), (small, 3.0, None), (small, 9.0, None), (large, 60.0, None), (small, 0.1, gpu)]
    ):
        record(stage("stage_one", lane="train", cost=cost, number=number), root, seconds, compute)
    twice = {name: 2 * value for name, value in small.items()}
    assert estimate(stage("stage_one", lane="train", cost=twice), root) == 6.0, "the median of three, twice as long"
    assert estimate(stage("stage_one", lane="train", cost=large, other=1), root) == pytest.approx(60.0)
    assert estimate(stage("stage_one", lane="train", cost=twice), root, gpu) == 0.2
    assert estimate(stage("stage_two", lane="train", cost=twice), root) == 6.0, "before a stage two is recorded"
    resumed = stage("stage_one", lane="train", cost=small, number=9)
    record(resumed, str(tmp_path / "other"), 1.0, facts={"seconds": 4.0})
    assert estimate(stage("stage_one", lane="train", cost=twice), str(tmp_path / "other")) == 8.0
    for compute in (Compute(workers=8), Compute(resources={"CPU": 8.0})):
        assert estimate(stage("stage_one", lane="train", cost=twice), root, compute) is None


def test_a_stage_that_reads_a_corpus_takes_its_bytes_at_the_recorded_rate(tmp_path):
    read = stage("passages", cost={"bytes": 2e6}, corpus="small")
    assert estimate(read, str(tmp_path)) is None
    record(read, str(tmp_path), 4.0)
    assert estimate(stage("passages", cost={"bytes": 1e8}, corpus="large"), str(tmp_path)) == 200.0
    assert estimate(stage("passages", cost={"seconds": 10.0}), str(tmp_path)) == 4.0, "of the embedded corpus"


def test_a_time_that_an_option_needs_is_assumed_aloud_before_the_first_training(tmp_path, capsys):
    print_once.cache_clear()
    first = stage("stage_one", lane="train", cost={"flops": 1.2e12, "tokens": 10})
    for compute, seconds in ((Compute(), 4.0), (Compute(workers=2), 2.0)):
        assert stage_seconds([first], Records(str(tmp_path)), compute, assumed=True) == {first.fingerprint: seconds}
    told = said(capsys)
    assert told.count("no training on these resources is recorded under") == 1
    assert told.endswith("assuming 3e+11 FLOPs per second of each CPU worker")
    record(first, str(tmp_path), 5.0)
    again = stage("stage_one", lane="train", cost=first.cost, seed=1)
    assert stage_seconds([again], Records(str(tmp_path)), Compute(), assumed=True)[again.fingerprint] == 5.0
    assert not said(capsys)
