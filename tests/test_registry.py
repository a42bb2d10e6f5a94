"""What lies under a root: experiments are noted; what none needs is listed, and deleted alone, when asked."""

import re

import pytest
from test_stages import make_stage, write_record

from tlm_ray import storage
from tlm_ray.runs.stages.locks import StageLocked, claimed, locked
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.registry import delete, held, note, noted


def write(folder, inputs):
    storage.write_bytes(storage.join(folder, "out.bin"), b"x" * 1000)
    return {"rows": 3}


def fail(folder, inputs):
    storage.write_bytes(storage.join(folder, "half.bin"), b"x")
    raise ValueError("no")


def laid_out():
    """Two trainings on the same blocks, one of which another experiment needs too, and one that fails."""
    blocks = make_stage("blocks", make=write)
    one, two = (make_stage("stage_one", version=v, make=write, inputs={"blocks": blocks}, lane="train") for v in (1, 2))
    return blocks, one, two, make_stage("stage_two", make=fail, lane="train")


@pytest.fixture
def filled(root):
    """A root with both trainings, half of the third, and two experiments."""
    _, one, two, bad = laid_out()
    note(root, "first", [one, bad])
    note(root, "second", [two])
    with pytest.raises(ValueError, match="no"):
        make([one, two, bad], root)
    storage.write_bytes(storage.join(root, "stage_two", "0" * 20, "half.bin"), b"x" * 10)  # of nobody known
    return root


def folders(*stages):
    return {stage.folder("") for stage in stages}


def test_experiments_and_what_they_need_are_noted_once(filled):
    blocks, one, two, bad = laid_out()
    note(filled, "first", [bad, one])
    assert {each.name: each.stages for each in noted(filled)} == {
        "first": folders(blocks, one, bad), "second": folders(blocks, two)
    }  # fmt: skip
    note(filled, "sweep", [one], key="the same search")
    note(filled, "sweep", [one, two], key="the same search", points=[{"k": 1}, {"k": 2}])
    note(filled, "sweep", [bad], key="the same search", points=[{"k": 2}, {"k": 3}])  # a process that knows of no other
    (sweep,) = (each for each in noted(filled) if each.name == "sweep")
    assert sweep.stages == folders(blocks, one, two, bad), "a sweep's note grows"
    assert sweep.points == ({"k": 1}, {"k": 2}, {"k": 3})
    end = {"point": {"k": 1}, "stopped_step": 4, "stopped_dev": 40.0}
    note(filled, "sweep", [], key="the same search", hours={"a": 2.0, "b": 1.0}, stopped=[end])
    note(filled, "sweep", [], key="the same search", hours={"a": 1.5}, stopped=[end])
    (sweep,) = (each for each in noted(filled) if each.name == "sweep")
    assert sweep.hours == {"a": 2.0, "b": 1.0} and sweep.stopped == (end,), "hours that were spent stay spent"
    assert sweep.stages == folders(blocks, one, two, bad)


def test_what_is_held_is_told_by_one_listing(filled):
    blocks, one, two, bad = laid_out()
    there = {each.folder: each for each in held(filled)}
    assert there.keys() == folders(blocks, one, two, bad) | {f"stage_two/{'0' * 20}"}
    assert {each.folder for each in there.values() if each.complete} == folders(blocks, one, two)
    assert there[bad.folder("")].size == 1 and there[blocks.folder("")].size > 1000
    found = Records(filled).many(sorted(folders(blocks, one)))
    assert all(record["facts"] == {"rows": 3} for record in found.values())


def test_what_a_job_makes_is_told_and_not_deleted(filled):
    _, one, _, _ = laid_out()
    with locked(filled, one.folder("")):
        assert claimed(filled).keys() == folders(one)
        with pytest.raises(StageLocked, match="is being made by another job"):
            delete(filled, one.folder(""))
    delete(filled, one.folder(""))
    assert one.record(filled) is None and one.folder("") not in {each.folder for each in held(filled)}


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_from_the_scripts(filled, tmp_path, called, capsys):
    def run(name, root, *arguments, code=0):
        if not code:
            return " ".join(called(f"experiments/{name}.py", "--root", root, *arguments).split())
        with pytest.raises(SystemExit, match=f"^{code}$"):
            called(f"experiments/{name}.py", "--root", root, *arguments)
        return " ".join(capsys.readouterr().out.split())

    blocks, _, two, _ = laid_out()
    said = run("status", filled, "--price", "3")
    assert re.search(r"stage_one 2 0\.00 0\.00 0\.00 0\.00 stage_two 0 2 0\.00", said)
    assert "first 2 of 3" in said and "second 2 of 2" in said
    said = run("clean", filled)
    assert said.startswith(f"stage_two/{'0' * 20} unfinished, 0.0 MB 1 stages, 0.00 GB can be deleted; add --delete")
    said = run("clean", filled, "--forget", "first", "--delete")
    assert said.endswith("deleted 3 stages, 0.00 GB")
    assert {each.folder for each in held(filled)} == folders(blocks, two)
    assert [each.name for each in noted(filled)] == ["second"]
    assert "--forget nosuch: no such experiment; registered are second" in run(
        "clean", filled, "--forget", "nosuch", code=2
    )
    assert "no stages there" in run("status", str(tmp_path / "empty"), code=2)
    assert "no experiment is registered there" in run("clean", str(tmp_path / "empty"), code=2)


@pytest.mark.parametrize("root", ["local"], indirect=True)
@pytest.mark.parametrize(("kind", "hours"), [("GPU", 80), ("CPU", 160)])
def test_the_cost_is_that_of_all_attempts_of_all_workers_of_trainings(root, called, kind, hours):
    """Two hours of preparation on CPUs are not priced, nor are trainings on CPUs beside ones on GPUs."""
    compute = {"workers": 8, "CPU": 2} | ({"GPU": 1} if kind == "GPU" else {})
    write_record(make_stage("blocks"), root, seconds=7_200)
    write_record(make_stage("stage_one"), root, seconds=3_600, facts={"compute": compute, "seconds": 36_000})
    if kind == "GPU":
        alone = {"compute": {"workers": 1, "CPU": 1}, "seconds": 3_600}
        write_record(make_stage("stage_two"), root, seconds=3_600, facts=alone)
    said = called("experiments/status.py", "--root", root, "--price", "3.5")
    lines = {name: numbers for name, *numbers in map(str.split, said.splitlines()) if numbers}
    assert f"{kind} hours of training" in " ".join(said.split())
    assert lines["blocks"][-3:] == ["2.00", "0.00", "0.00"]
    assert lines["stage_one"][-3:] == ["10.00", f"{hours:.2f}", f"{3.5 * hours:.2f}"]
    assert lines["all"][-2:] == lines["stage_one"][-2:]
