"""What a run will take: the wall clock of a plan, and a time once a training is recorded."""

import pytest
from test_plan import record, stage

from tlm_ray import Data, Place, Workers, open_flow, recipe_for
from tlm_ray.runs.experiment import show_plan
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.planning import plan
from tlm_ray.runs.planning.plan import Line, wall_seconds


def lines(*found):
    return [Line(stage=each, needed_by="all", found=False, seconds=seconds) for each, seconds in found]


@pytest.mark.parametrize(
    ("at_once", "overlap", "expected"), [(1, False, 35), (2, False, 19), (2, True, 17), (9, True, 11)]
)
def test_data_stages_go_one_by_one_and_trainings_side_by_side_after_their_inputs(at_once, overlap, expected):
    data = [stage("blocks", number=0), stage("blocks", number=1)]
    trainings = [stage("stage_one", data[seed % 2], lane="train", seed=seed) for seed in range(4)]
    planned = lines((data[0], 1.0), (data[1], 2.0), *((each, 8.0) for each in trainings))
    assert wall_seconds(planned, at_once=at_once, overlap=bool(overlap)) == expected
    chain = [stage("stage_one", lane="train")]
    chain.append(stage("stage_two", chain[0], lane="train"))
    assert wall_seconds(lines((chain[0], 5.0), (chain[1], 1.0)), at_once=2, overlap=True) == 6
    both = [stage("stage_one", lane="train", seed=seed) for seed in range(2)]
    both = [each for one in both for each in (one, stage("stage_two", one, lane="train"))]
    planned = lines(*((each, 5.0) for each in both))
    assert wall_seconds(planned, at_once=2, overlap=True) == 10, "a stage two does not keep its stage one's place busy"
    plain = [stage("metrics", lane="plain", number=number) for number in range(2)]
    planned = lines((plain[0], 3.0), (plain[1], 4.0), (data[0], 1.0), (trainings[0], 8.0))
    assert wall_seconds(planned, at_once=1, overlap=False) == 9, "plain rows keep nothing waiting"
    planned = lines((plain[0], 6.0), (plain[1], 7.0), (data[0], 1.0), (trainings[0], 8.0))
    assert wall_seconds(planned, at_once=1, overlap=False) == 13, "one plain row at a time"


@pytest.fixture
def flow(data, tmp_path):
    own = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    return open_flow(own, Place(root=str(tmp_path / "root")), Workers())


def test_the_first_run_of_a_recipe_tells_the_next_ones_time(flow, capsys):
    """Made up records, as a run would write them."""
    recipe = recipe_for("topics", "mini", train_rows=60, row_words=30)
    first, second = (Training(row="r", task="topics", recipe=recipe, seed=seed) for seed in (0, 1))
    show_plan([first], flow)
    assert "time: unknown until one training" in capsys.readouterr().out
    for each in first.stages(flow).metrics.upstream():
        record(each, flow.execution.root, 30.0 if each.lane == "train" else 1.0)
    show_plan([first, second], flow)
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "about 1.5 min with" in told
        and "of other stages and 0.03 CPU hours of training" in told
        and "unknown" not in told
    )


@pytest.mark.parametrize(
    ("share", "cpus"),
    [("max 100000", 8), ("400000 100000", 4), ("50000 100000", 1), ("9900000 100000", 8), (None, 8)],
)
def test_a_containers_share_of_a_machines_cpus_is_what_there_is(tmp_path, monkeypatch, share, cpus):
    monkeypatch.setattr(plan, "CPU_SHARE", str(tmp_path / "cpu.max"))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    if share:
        (tmp_path / "cpu.max").write_text(f"{share}\n")
    assert plan.machine_cpus() == cpus
