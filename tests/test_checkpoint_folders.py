"""The folder of a run's checkpoints: the newest whole one is found, whatever was damaged, cut off or did not fit."""

import errno
import threading

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import torch
from tied import (
    change,
    make_trained,
    restore,
    take_steps,
)

from tlm_ray import storage
from tlm_ray.training.loop.checkpoints import Checkpoints, Progress, snapshot, take_checkpoint


@pytest.fixture
def trained():
    return make_trained()


def save_steps(folder, trained, *steps):
    checkpoints = Checkpoints(str(folder))
    for step in steps:
        checkpoints.save(lambda step=step: take_checkpoint(*trained, Progress(step=step), None))
    checkpoints.wait()
    return checkpoints


def test_the_newest_two_are_kept_in_order(trained, tmp_path):
    checkpoints = save_steps(tmp_path, trained, 5, 90, 100, 1000)
    names = ["checkpoint_000001000", "checkpoint_000000100"]
    assert checkpoints.newest_first() == [str(tmp_path / name) for name in names]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted(names)
    assert checkpoints.newest_whole() == (str(tmp_path / names[0]), [])


def test_a_folder_that_is_not_there_has_no_checkpoint(tmp_path):
    assert Checkpoints(str(tmp_path / "none")).newest_whole() == (None, [])


def test_the_checkpoint_before_a_damaged_one_is_found_then_none(trained, tmp_path):
    checkpoints = save_steps(tmp_path, trained, 5, 10)
    newest, before = (tmp_path / f"checkpoint_{step:09}" for step in (10, 5))
    change(newest, "model.safetensors", "truncated")
    found, damaged = checkpoints.newest_whole()
    assert found == str(before) and len(damaged) == 1
    assert damaged[0].startswith(f"{newest}/model.safetensors has ")
    change(before, "optimizer.safetensors", "missing")
    assert checkpoints.newest_whole() == (None, [*damaged, f"{before}/optimizer.safetensors is missing"])


def test_what_is_damaged_is_told_without_the_credentials_of_its_location(trained, tmp_path, s3_query):
    save_steps(tmp_path, trained, 5)
    change(tmp_path / "checkpoint_000000005", "model.safetensors", "truncated")
    there = f"s3://KEY:SECRET@checkpoints/run{s3_query}"
    storage.copy_folder(str(tmp_path), there)
    _, (damage,) = Checkpoints(there).newest_whole()  # which comes to stand in the stage's record
    assert "checkpoints/run" in damage and "SECRET" not in damage


def test_a_damaged_checkpoint_is_written_anew(trained, tmp_path):
    checkpoints = save_steps(tmp_path, trained, 5, 10)
    change(tmp_path / "checkpoint_000000010", "model.safetensors", "one bit")
    save_steps(tmp_path, trained, 10)
    assert checkpoints.newest_whole() == (str(tmp_path / "checkpoint_000000010"), [])
    assert len(checkpoints.newest_first()) == 2


def test_a_write_that_was_cut_off_is_no_checkpoint(trained, tmp_path):
    checkpoints = save_steps(tmp_path, trained, 5, 10)
    (tmp_path / "checkpoint_000000010" / "state.json").unlink()
    assert checkpoints.newest_whole() == (str(tmp_path / "checkpoint_000000005"), [])


def test_training_goes_on_while_a_checkpoint_is_written_and_waits_before_the_next(trained, tmp_path, monkeypatch):
    go_on, taken = threading.Event(), []

    def write_slowly(uri, data, write=storage.write_bytes):
        assert go_on.wait(10)
        write(uri, data)

    def take(step):
        taken.append(step)
        return take_checkpoint(*trained, Progress(step=step), None)

    monkeypatch.setattr(storage, "write_bytes", write_slowly)
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(lambda: take(5))
    expected = snapshot(trained[0])
    take_steps(*trained, 5, 9)
    second = threading.Thread(target=checkpoints.save, args=(lambda: take(9),))
    second.start()
    second.join(0.2)
    assert taken == [5], "two checkpoints at a time are in memory"
    go_on.set()
    second.join()
    checkpoints.wait()
    assert taken == [5, 9]
    first = restore(tmp_path / "checkpoint_000000005")[0]
    assert all(torch.equal(expected[name], value) for name, value in snapshot(first).items())


class FullDisk(pafs.LocalFileSystem):
    """A filesystem with no room for an optimizer."""

    def open_output_stream(self, path, *args, **kwargs):
        if "optimizer" in path:
            return pa.PythonFile(FullFile(), mode="w")
        return super().open_output_stream(path, *args, **kwargs)


class FullFile:
    closed = False

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self): ...

    def close(self): ...


def test_a_full_disk_is_told_with_the_file_and_the_checkpoint_before_stays(trained, tmp_path, monkeypatch):
    checkpoints = save_steps(tmp_path, trained, 5, 10)
    with monkeypatch.context() as patch:
        patch.setattr("tlm_ray.storage.files.open_filesystem", lambda uri: (FullDisk(), uri))
        checkpoints.save(lambda: take_checkpoint(*trained, Progress(step=15), None))
        message = r"no space left on the device; free some.*'.*checkpoint_000000015/optimizer\.safetensors'"
        with pytest.raises(OSError, match=message) as raised:
            checkpoints.save(lambda: pytest.fail("nothing more is taken"))
        assert raised.value.errno == errno.ENOSPC
    assert checkpoints.newest_whole() == (str(tmp_path / "checkpoint_000000010"), [])
    assert not (tmp_path / "checkpoint_000000015").exists(), "half a checkpoint keeps the disk full"


def test_a_checkpoint_is_late_after_three_quarters_of_a_minute_or_ten_times_what_one_takes(
    tmp_path, trained, monkeypatch
):
    clock = [1000.0]
    monkeypatch.setattr("tlm_ray.training.loop.checkpoints.time.monotonic", lambda: clock[0])
    checkpoints = Checkpoints(str(tmp_path))
    assert not checkpoints.is_late()
    clock[0] += 46
    assert checkpoints.is_late()
    real = storage.write_record
    monkeypatch.setattr(
        storage, "write_record", lambda uri, values: (real(uri, values), clock.insert(0, clock[0] + 20))
    )
    checkpoints.save(lambda: take_checkpoint(*trained, Progress(step=5), None))
    checkpoints.wait()
    assert not checkpoints.is_late(), "20 s have passed"
    clock[0] += 100
    assert not checkpoints.is_late(), "which took 20 s"
    clock[0] += 90
    assert checkpoints.is_late()
