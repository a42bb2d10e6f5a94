"""The plan of a run: who needs a stage, what it costs, and what is not known."""

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.runs.planning.plan import Wanted, plan_lines, show, training_rate
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.stage import Stage


def stage(name, *inputs, lane="data", cost=None, **parameters):
    sources = {source.name: source for source in inputs}
    return Stage(name=name, version=1, parameters=parameters, inputs=sources, lane=lane, cost=cost or {},
                 make=lambda folder, inputs: {})  # fmt: skip


def record(stage, root, **facts):
    storage.write_record(
        storage.join(stage.folder(root), "record.json"),
        {"recipe": stage.recipe, "facts": facts, "cost": dict(stage.cost)},
    )


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
    lines = plan_lines(wanted(), str(tmp_path), compute=Compute())
    said = [(line.stage.name, line.needed_by) for line in lines]
    assert len(said) == 1 + 2 + 4 + 8
    assert ("passages", "general") in said and ("task", "sciie") in said
    assert ("blocks", "alone; sciie") in said and ("stage_two", "general; [red]ag[/]; seed 1") in said
    many = [Wanted(row=f"row {n}", task="t", seed=0, stage=wanted()[n % 3].stage) for n in range(9)]
    assert {line.needed_by for line in plan_lines(many, str(tmp_path), compute=Compute())} == {
        "all", "3 of 9 rows", "6 of 9 rows"
    }  # fmt: skip
    alone = plan_lines(wanted()[:1], str(tmp_path), compute=Compute())
    assert {line.needed_by for line in alone} == {"all"}


def test_the_plan_sums_what_is_to_make_and_prints_names_as_they_are(tmp_path, capsys):
    show(wanted(), Execution(root=str(tmp_path), side_by_side=0))
    said = " ".join(capsys.readouterr().out.split())
    assert "0 of 15 stages cached, 15 to run: 8.00e+01 tokens, 4.80E11 FLOPs (6 x tokens x parameters)" in said
    assert "about 15 s with 1 training at a time (a cluster may have room for more): 7 s of data stages" in said
    assert "not included: 4 stages of unknown duration" in said and "[red]ag[/]" in said
    for one in wanted()[:2]:
        for found in one.stage.upstream():
            record(found, str(tmp_path), seconds=1.0)
    show(wanted(), Execution(root=str(tmp_path), side_by_side=4))
    said = " ".join(capsys.readouterr().out.split())
    assert "4 of 15 stages cached, 11 to run" in said and "with 4 trainings at a time: 6 s of data stages" in said


def test_a_training_whose_encoder_was_not_opened_has_no_estimate_and_spoils_none(tmp_path, capsys):
    root = str(tmp_path)
    known = stage("stage_two", lane="train", cost={"flops": 600.0, "tokens": 2})
    opened = stage("stage_two", known, lane="train", cost={"tokens": 2})
    record(known, root, seconds=3.0, compute=Compute().parts)
    record(opened, root, seconds=3.0, compute=Compute().parts)
    assert training_rate("stage_two", root, Compute()) == 200
    last = stage("stage_two", known, lane="train", cost={"tokens": 2}, other=1)
    show([Wanted(row="r", task="t", seed=0, stage=last)], Execution(root=root))
    said = " ".join(capsys.readouterr().out.split())
    assert "unknown" in said and "not included: 1 stages of unknown duration" in said


def test_the_speed_of_a_gpu_or_of_more_workers_is_not_told_by_trainings_of_one_cpu(tmp_path):
    root, one = str(tmp_path), Compute()
    others = [Compute(resources={"CPU": 4.0, "GPU": 1.0}), Compute(workers=8), Compute(resources={"CPU": 8.0})]
    record(stage("stage_one", lane="train", cost={"flops": 600.0}), root, seconds=3.0, compute=one.parts)
    assert training_rate("stage_one", root, one) == 200
    assert [training_rate("stage_one", root, each) for each in others] == [3e14, 8 * 6e10, 6e10]
    gpu = stage("stage_one", lane="train", cost={"flops": 8e15}, on="a GPU")
    record(gpu, root, seconds=4.0, compute=others[0].parts)
    assert [training_rate("stage_one", root, each) for each in (one, others[0])] == [200, 2e15]
