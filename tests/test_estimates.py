"""What a run will take: the wall clock of a plan, sizes that are known before anything is made, a pace that is kept."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from test_plan import stage

from tlm_ray import Data, Place, Workers, baseline, open_flow, recipe_for, storage
from tlm_ray.compute import Compute
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.planning import estimates, paces
from tlm_ray.runs.planning.plan import Line, wall_seconds
from tlm_ray.runs.planning.sizes import sizes_of
from tlm_ray.training.calibration import seconds_a_step


def lines(*found):
    return [Line(stage=each, needed_by="all", found=False, seconds=seconds) for each, seconds in found]


@pytest.mark.parametrize(
    ("at_once", "overlap", "expected"), [(1, False, 35), (2, False, 19), (2, True, 17), (9, True, 11)]
)
def test_data_stages_go_one_by_one_and_trainings_side_by_side_after_their_inputs(at_once, overlap, expected):
    data = [stage("blocks", number=0), stage("blocks", number=1)]
    trainings = [stage("stage_one", data[seed % 2], lane="train", seed=seed) for seed in range(4)]
    plan = lines((data[0], 1.0), (data[1], 2.0), *((each, 8.0) for each in trainings))
    assert wall_seconds(plan, at_once=at_once, overlap=bool(overlap)) == expected
    chain = [stage("stage_one", lane="train")]
    chain.append(stage("stage_two", chain[0], lane="train"))
    assert wall_seconds(lines((chain[0], 5.0), (chain[1], 1.0)), at_once=2, overlap=True) == 6
    both = [stage("stage_one", lane="train", seed=seed) for seed in range(2)]
    both = [each for one in both for each in (one, stage("stage_two", one, lane="train"))]
    plan = lines(*((each, 5.0) for each in both))
    assert wall_seconds(plan, at_once=2, overlap=True) == 10, "a stage two does not keep its stage one's place busy"


@pytest.fixture
def flow(data, tmp_path):
    own = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    return open_flow(own, Place(root=str(tmp_path / "root")), Workers())


def test_sizes_are_those_of_the_task_and_near_those_of_the_corpus(flow, data):
    recipe = recipe_for("topics", "mini", train_rows=60, row_words=30)
    sizes = sizes_of(flow, recipe, "topics")
    assert (sizes.queries, sizes.dev_rows, sizes.test_rows, sizes.classes) == (60, 24, 24, 3)
    texts = [t for part in (data / "corpus").glob("*.parquet") for t in pq.read_table(part)["text"].to_pylist()]
    real = sum(len(text.encode()) for text in texts)
    assert 0.3 * real < sizes.text_bytes < 3 * real, "a Parquet file tells its packed size only"
    assert max(sizes.general_tokens) <= recipe.block_tokens and sizes.selected_bytes(5) <= sizes.text_bytes


def test_a_pace_is_measured_once_under_a_root_and_names_an_encoder_that_is_not_there(flow, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(paces, "seconds_a_step", lambda load, **options: asked.append(load.key) or 0.01)
    recipe = recipe_for("topics", "mini", train_rows=60, row_words=30)
    seeds = [Training(row="r", task="topics", recipe=recipe, seed=seed) for seed in (0, 1)]
    first, again = estimates.stage_seconds(seeds, flow), estimates.stage_seconds(seeds, flow)
    assert first == again and len(set(asked)) == len(asked) == 2, "stage one and stage two"
    steps = {stage.fingerprint: stage.parameters["schedule"].steps for stage in seeds[0].stages(flow).trained}
    assert all(first[fingerprint] > 0.01 * count for fingerprint, count in steps.items())
    assert {stage.fingerprint for one in seeds for stage in one.stages(flow).metrics.upstream()} - set(first) == {
        seeds[0].stages(flow).task.fingerprint
    }, "whose own cost is as good"
    kept = storage.read_record(storage.join(flow.execution.root, "paces.json"))
    assert set(kept.values()) == {0.01} and capsys.readouterr().out.count("measuring the pace of stage") == 2

    def gone(load, **options):
        raise OSError("no such thing\nand much more")

    monkeypatch.setattr(paces, "seconds_a_step", gone)
    other = baseline(recipe, "nosuch", train_rows=60)
    with pytest.raises(ValueError, match=r"encoder 'nosuch': cannot be opened \(no such thing\); give a name"):
        estimates.stage_seconds([Training(row="r", task="topics", recipe=other)], flow)


def test_a_pace_is_of_what_trainings_run_on(flow, monkeypatch):
    def key(**resources):
        own = replace(flow, execution=replace(flow.execution, compute=Compute(resources=resources)))
        load = paces.load_of(recipe, recipe.settings_one(0), sizes_of(flow, recipe, "topics"), own.execution)
        return paces.Paces(execution=own.execution)._name(load)

    recipe = recipe_for("topics", "mini", train_rows=60, row_words=30)
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")  # as many side by side as were asked for
    assert len({key(CPU=1), key(CPU=2), key(CPU=8), key(CPU=8, GPU=1)}) == 4
    assert key(CPU=1) == key(CPU=1.5) and key(CPU=1, GPU=1) == key(CPU=8, GPU=1)


@pytest.mark.parametrize(
    ("share", "cpus"),
    [("max 100000", 8), ("400000 100000", 4), ("50000 100000", 1), ("9900000 100000", 8), (None, 8)],
)
def test_a_containers_share_of_a_machines_cpus_is_what_there_is(tmp_path, monkeypatch, share, cpus):
    monkeypatch.setattr(paces, "CPU_SHARE", str(tmp_path / "cpu.max"))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    if share:
        (tmp_path / "cpu.max").write_text(f"{share}\n")
    assert paces.machine_cpus() == cpus


@pytest.mark.slow
def test_some_steps_are_timed_in_processes_of_their_own(flow):
    recipe = recipe_for("topics", "mini", train_rows=60, row_words=30).settled(gpu=False)
    sizes = sizes_of(flow, recipe, "topics")
    for settings in (recipe.settings_one(0), recipe.settings_two(0, recipe.start)):
        load = paces.load_of(recipe, settings, sizes, flow.execution)
        assert 1e-4 < seconds_a_step(load) < 60
