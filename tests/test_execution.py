"""Making stages: each once, in order, side by side, and never on half of what was deleted."""

import os
import sys
import threading
import time

import pytest
from waiting import wait_for

from tlm_ray import metrics, storage
from tlm_ray.runs.stages import locks, making
from tlm_ray.runs.stages.locks import LOCKS, StageLocked, locked
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, unique
from tlm_ray.storage.listing import list_files

RECORD = "record.json"
TRAININGS = [f"{name}-{seed}" for name in ("one", "two", "metrics") for seed in (0, 1)]


class Kitchen:
    """Builds small fake stages and remembers, in order, which were made."""

    def __init__(self, root):
        self.root, self.made, self.faults = str(root), [], {}
        self.guard = threading.Lock()

    def stage(self, name, *sources, lane="data", scratch="", **parameters):
        def cook(folder, inputs):
            for uri in inputs.values():
                storage.read_record(storage.join(uri, RECORD))  # inputs are complete before anything reads them
            with self.guard:
                self.made.append(name)
            if name in self.faults:
                raise self.faults[name]
            storage.write_json(storage.join(folder, "out.json"), sorted(inputs))
            return {"rows": len(inputs)}

        inputs = {source.name: source for source in sources}
        return Stage(name=name, version=1, parameters=parameters, inputs=inputs, make=cook, lane=lane, scratch=scratch)

    def make(self, *stages, **options):
        """Make stages; returns the names of those made now."""
        before = len(self.made)
        make(stages, self.root, **options)
        return self.made[before:]

    def delete(self, stage):
        storage.delete(stage.folder(self.root))

    def has(self, stage):
        return stage.record(self.root) is not None


@pytest.fixture
def kitchen(tmp_path):
    return Kitchen(tmp_path)


@pytest.fixture
def flow(kitchen):
    """The shape of the real flow: two trainings that share all data stages."""
    task = kitchen.stage("task")
    passages = kitchen.stage("passages")
    neighbours = kitchen.stage("neighbours", passages, task)
    blocks = kitchen.stage("blocks", task, neighbours)
    ends = []
    for seed in (0, 1):
        one = kitchen.stage(f"one-{seed}", blocks, lane="train", seed=seed)
        two = kitchen.stage(f"two-{seed}", blocks, one, lane="train", seed=seed)
        ends.append(kitchen.stage(f"metrics-{seed}", blocks, two, lane="train"))
    return {stage.name: stage for stage in unique(ends)}


def ends_of(flow):
    return flow["metrics-0"], flow["metrics-1"]


@pytest.mark.parametrize("side_by_side", [1, 2, 5])
def test_every_stage_is_made_once_and_after_its_inputs(kitchen, flow, side_by_side):
    made = kitchen.make(*ends_of(flow), side_by_side=side_by_side)
    assert sorted(made) == sorted(flow)
    for stage in flow.values():
        assert all(made.index(source.name) < made.index(stage.name) for source in stage.inputs.values())


def test_records_come_back_by_fingerprint_and_hold_recipe_facts_and_cost(kitchen):
    task = kitchen.stage("task", k=20)
    blocks = kitchen.stage("blocks", task)
    records = make([blocks], kitchen.root)
    assert set(records) == {task.fingerprint, blocks.fingerprint}
    record = records[blocks.fingerprint]
    assert record == blocks.record(kitchen.root)
    assert record["recipe"] == blocks.recipe and record["facts"] == {"rows": 1} and record["seconds"] >= 0


def test_a_second_run_makes_nothing(kitchen, flow, capsys):
    kitchen.make(*ends_of(flow))
    capsys.readouterr()
    assert kitchen.make(*ends_of(flow)) == []
    lines = capsys.readouterr().out.split("\n")
    assert [line.split()[:2] for line in lines if line] == [["cached", "metrics-0"], ["cached", "metrics-1"]]


def test_what_another_run_made_is_not_made_again(kitchen, flow):
    assert "blocks" in kitchen.make(flow["metrics-0"])
    assert kitchen.make(*ends_of(flow)) == ["one-1", "two-1", "metrics-1"]


def test_another_seed_reruns_only_what_it_is_a_parameter_of(kitchen, flow):
    kitchen.make(*ends_of(flow))
    one = kitchen.stage("one-0", flow["blocks"], lane="train", seed=7)
    assert kitchen.make(kitchen.stage("metrics-0", flow["blocks"], one)) == ["one-0", "metrics-0"]


@pytest.mark.parametrize(
    ("deleted", "again"),
    [
        ("metrics-0", {"metrics-0"}),
        ("two-1", {"two-1", "metrics-1"}),
        ("one-0", {"one-0", "two-0", "metrics-0"}),
        ("blocks", {"blocks", *TRAININGS}),
        ("passages", {"passages", "neighbours", "blocks", *TRAININGS}),
    ],
)
def test_a_deleted_stage_is_made_again_with_all_that_depends_on_it(kitchen, flow, deleted, again):
    kitchen.make(*ends_of(flow))
    kitchen.delete(flow[deleted])
    made = kitchen.make(*ends_of(flow))
    assert sorted(made) == sorted(again)
    assert kitchen.make(*ends_of(flow)) == []


def test_a_run_cut_off_after_a_deletion_trusts_nothing_of_before(kitchen, flow):
    kitchen.make(*ends_of(flow))
    kitchen.delete(flow["blocks"])
    kitchen.faults["one-0"] = kitchen.faults["one-1"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        kitchen.make(*ends_of(flow))
    assert kitchen.has(flow["blocks"]) and not kitchen.has(flow["two-0"]) and not kitchen.has(flow["metrics-1"])
    kitchen.faults.clear()
    assert sorted(kitchen.make(*ends_of(flow))) == sorted(TRAININGS)


def test_without_overlap_data_stages_go_first_and_a_failed_one_stops_only_its_own(kitchen, flow):
    lost = kitchen.stage("lost", kitchen.stage("corpus"))
    other = kitchen.stage("train-lost", lost, lane="train")
    kitchen.faults["corpus"] = ValueError("no text")
    with pytest.raises(ValueError, match="no text"):
        kitchen.make(other, *ends_of(flow), overlap=False)
    assert kitchen.has(flow["metrics-0"]) and kitchen.has(flow["metrics-1"]) and "lost" not in kitchen.made
    first_training = min(kitchen.made.index(name) for name in TRAININGS)
    assert {"task", "passages", "neighbours", "blocks", "corpus"} == set(kitchen.made[:first_training])


def test_plain_rows_keep_neither_data_stages_nor_trainings_waiting(kitchen, flow):
    trained = threading.Event()
    waits = {"make": lambda *_: {"trained": trained.wait(timeout=20)}, "lane": "plain"}
    rows = [Stage(name=name, version=1, parameters={}, **waits) for name in ("linear", "neighbours")]
    started = {"make": lambda *_: {"told": trained.set()}, "lane": "train"}
    training = Stage(name="one", version=1, parameters={}, inputs={"blocks": flow["blocks"]}, **started)
    records = make([*rows, training], kitchen.root, overlap=False)
    assert [records[row.fingerprint]["facts"]["trained"] for row in rows] == [True, True]


def test_a_failure_lets_the_others_finish_and_raises_the_first_error(kitchen, flow):
    kitchen.faults["one-0"] = RuntimeError("no memory left")
    with pytest.raises(RuntimeError, match="no memory left"):
        kitchen.make(*ends_of(flow))
    assert kitchen.has(flow["metrics-1"]) and not kitchen.has(flow["one-0"])
    assert "two-0" not in kitchen.made and "metrics-0" not in kitchen.made
    kitchen.faults.clear()
    assert kitchen.make(*ends_of(flow)) == ["one-0", "two-0", "metrics-0"]


def test_of_two_failures_the_first_is_raised(kitchen):
    task = kitchen.stage("task")
    first, second = (kitchen.stage(name, task) for name in ("first", "second"))
    kitchen.faults |= {"first": ValueError("came first"), "second": ValueError("came second")}
    with pytest.raises(ValueError, match="came first"):
        kitchen.make(first, second)
    assert kitchen.made == ["task", "first", "second"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupted_stage_leaves_no_record_and_no_lock(kitchen, error):
    task = kitchen.stage("task")
    kitchen.faults["task"] = error("cut off")
    with pytest.raises(error):
        kitchen.make(task)
    assert not kitchen.has(task)
    left = [file.uri.rpartition("/")[2] for file in list_files(task.folder(kitchen.root), missing_ok=True)]
    assert left == []


def test_scratch_goes_when_the_record_is_written_and_stays_in_a_stage_that_failed(kitchen, monkeypatch, capsys):
    stage, failing = (kitchen.stage(name, scratch="steps") for name in ("one", "two"))
    kitchen.faults["two"] = RuntimeError("no power")
    files = [storage.join(s.folder(kitchen.root), "steps/1.json") for s in (stage, failing)]
    for file in files:
        storage.write_json(file, {})
    kitchen.make(stage)
    with pytest.raises(RuntimeError, match="no power"):
        kitchen.make(failing)
    assert [storage.exists(file) for file in files] == [False, True]

    def refuse(uri, delete=storage.delete):
        if uri.endswith("/steps"):
            raise OSError("store is read-only")
        delete(uri)

    monkeypatch.setattr("tlm_ray.runs.stages.making.storage.delete", refuse)
    other = kitchen.stage("three", scratch="steps")
    kitchen.make(other)
    assert kitchen.has(other) and "three/" in (said := capsys.readouterr().out) and "store is read-only" in said


@pytest.mark.parametrize("in_trial", [True, False])
def test_a_stage_of_a_trial_that_is_ended_has_not_failed(kitchen, capsys, monkeypatch, in_trial):
    """As Ray Tune ends a trial early; an alert on failed stages must not fire."""
    monkeypatch.setattr(making, "_in_trial", lambda: in_trial)
    stage = Stage(name="ended", version=1, parameters={}, make=lambda folder, inputs: sys.exit(0))
    with pytest.raises(SystemExit):
        make([stage], kitchen.root)
    assert ("failed" in capsys.readouterr().out) != in_trial


def test_stages_that_run_are_counted_by_lane_and_kind(kitchen):
    def at_work():
        found = {dict(tags)["stage"]: value for tags, value in metrics.STAGES_RUNNING.values.items()}
        return [found.get(name) for name in ("teacher_labels", "stage_one")]

    def waits_until(expected):
        return lambda folder, inputs: {"found": wait_for(lambda: at_work() == expected)}

    options = {"version": 1, "parameters": {}, "lane": "train"}
    first = Stage(name="teacher_labels", make=waits_until([1, 0]), **options)
    make([first, Stage(name="stage_one", make=waits_until([0, 1]), **options)], kitchen.root)
    assert at_work() == [0, 0]


def test_facts_that_are_not_json_leave_no_record(kitchen):
    stage = Stage(name="odd", version=1, parameters={}, make=lambda folder, inputs: {"facts": {1, 2}})
    with pytest.raises(TypeError, match="not JSON"):
        kitchen.make(stage)
    assert not kitchen.has(stage)


def test_a_stage_that_another_job_makes_is_refused_by_host_and_process(kitchen):
    stage = kitchen.stage("task")
    with locked(kitchen.root, stage.folder("")), pytest.raises(StageLocked, match=f"process {os.getpid()}"):
        kitchen.make(stage)
    assert kitchen.made == []
    assert kitchen.make(stage) == ["task"]


def test_a_call_that_was_interrupted_goes_on_and_its_repeat_takes_its_result(kitchen, monkeypatch, capsys):
    """As in a notebook, whose process stays."""
    begun, may_end, made = threading.Event(), threading.Event(), []

    def work(folder, inputs):
        made.append(folder)
        begun.set()
        assert may_end.wait(20)
        return {}

    def interrupted(running, **options):
        assert begun.wait(20)
        raise KeyboardInterrupt

    stage = Stage(name="task", version=1, parameters={}, make=work)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(making, "wait", interrupted)
        make([stage], kitchen.root)
    monkeypatch.setattr(locks, "PAUSES_S", (0.0,))
    monkeypatch.setattr(locks, "BEAT_S", 0.01)
    threading.Timer(0.5, may_end.set).start()
    make([stage], kitchen.root)
    assert len(made) == 1 and "an earlier call of this process goes on with it" in capsys.readouterr().out


def test_a_record_that_another_job_wrote_after_it_was_looked_for_stays(kitchen, flow, monkeypatch):
    kitchen.make(flow["blocks"])
    looked = Records(kitchen.root).found([flow["blocks"]])
    looked.pop(flow["blocks"].fingerprint)  # as if it had been written since
    monkeypatch.setattr(Records, "found", lambda self, stages: looked)
    assert kitchen.make(flow["blocks"]) == []


def test_records_of_a_stage_and_its_input_that_another_job_wrote_since_stay(kitchen, flow, monkeypatch):
    kitchen.make(flow["blocks"])
    monkeypatch.setattr(Records, "found", lambda self, stages: {})  # as if all had been written since
    assert kitchen.make(flow["blocks"]) == []


def test_a_job_does_not_wait_for_the_lock_of_what_is_found(kitchen):
    stage = kitchen.stage("task")
    kitchen.make(stage)
    with locked(kitchen.root, stage.folder("")):
        assert kitchen.make(stage) == []


def test_what_another_job_finished_meanwhile_is_not_made_again(kitchen):
    task = kitchen.stage("task")
    blocks = kitchen.stage("blocks", task)

    def watch(stage, record):
        if stage is task:
            make([blocks], kitchen.root)

    assert kitchen.make(blocks, watch=watch) == ["task", "blocks"]


def test_a_job_whose_claim_fell_leaves_the_record_to_the_one_that_took_over(kitchen):
    def sleep(folder, inputs):
        for claim in list_files(storage.join(kitchen.root, LOCKS)):
            storage.delete(claim.uri)
        return {}

    stage = Stage(name="data", version=1, parameters={}, make=sleep)
    with pytest.raises(StageLocked, match=f"stage '{stage.folder('')}': this job sent no heartbeat"):
        make([stage], kitchen.root)
    assert not kitchen.has(stage)


def test_trainings_run_side_by_side_and_data_stages_alone(kitchen):
    together = threading.Barrier(3)

    def meet(folder, inputs):
        together.wait(timeout=20)
        return {}

    def alone(folder, inputs):
        held = list_files(storage.join(kitchen.root, LOCKS), ".json")
        assert sum("/data/" in claim.uri for claim in held) == 1, "two data stages at once"
        return {}

    trainings = [Stage(name="train", version=v, parameters={}, make=meet, lane="train") for v in (1, 2, 3)]
    data = [Stage(name="data", version=v, parameters={}, make=alone) for v in range(1, 6)]
    make([*data, *trainings], kitchen.root, side_by_side=3)
    assert all(kitchen.has(stage) for stage in [*data, *trainings])


def test_no_more_trainings_run_than_side_by_side(kitchen):
    def train(folder, inputs):
        assert room.acquire(blocking=False), "three trainings at once"
        time.sleep(0.05)  # so that the others have begun, if they may
        room.release()
        return {}

    room = threading.Semaphore(2)
    stages = [Stage(name="train", version=v, parameters={}, make=train, lane="train") for v in range(1, 9)]
    assert len(make(stages, kitchen.root, side_by_side=2)) == 8


def test_watch_sees_each_stage_with_its_record(kitchen, flow):
    seen = {}
    make(ends_of(flow), kitchen.root, watch=lambda stage, record: seen.update({stage.name: record}))
    assert seen.keys() == flow.keys()
    assert all(seen[name] == flow[name].record(kitchen.root) for name in flow)


def test_a_record_of_another_recipe_stops_before_anything_is_made(kitchen, flow):
    kitchen.make(flow["blocks"])
    storage.write_record(storage.join(flow["task"].folder(kitchen.root), RECORD), {"recipe": {}, "facts": {}})
    with pytest.raises(ValueError, match="is of another recipe"):
        kitchen.make(*ends_of(flow))
    assert "one-0" not in kitchen.made and kitchen.has(flow["blocks"])


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"shards": -1}, {"side_by_side": -1}])
def test_an_execution_that_cannot_be_names_the_number(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} {value}: must be"):
        Execution(root="x", **wrong)
