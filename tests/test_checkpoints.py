"""Checkpoints: what is restored is what was saved, bit for bit; what is damaged is told; nothing is unpickled."""

import errno
import json
import threading
import zipfile

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tlm_ray import storage
from tlm_ray.training.checkpoints import (
    Checkpoints,
    DamagedCheckpoint,
    Progress,
    load_checkpoint,
    load_weights,
    read_checkpoint,
    save_checkpoint,
    snapshot,
    take_checkpoint,
)


class Tied(nn.Module):
    """Two layers that share a weight, and a buffer."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.out = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.out.weight = self.embed.weight
        self.register_buffer("places", torch.arange(3))

    def forward(self, ids):
        return self.out(self.embed(ids))


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1, fused=True)


def take_steps(model, optimizer, first, last):
    for step in range(first, last):
        torch.manual_seed(step)
        ids = torch.randint(0, 7, (16,))
        loss = nn.functional.cross_entropy(model(ids), ids.flip(0))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()


@pytest.fixture
def trained():
    model = Tied(0)
    optimizer = make_optimizer(model)
    take_steps(model, optimizer, 0, 5)
    return model, optimizer


def restore(folder, seed=1):
    model = Tied(seed)
    optimizer = make_optimizer(model)
    progress, best = load_checkpoint(str(folder), model, optimizer)
    return model, optimizer, progress, best


def assert_same_state(one, other):
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def assert_same_optimizer(one, other):
    left, right = one.state_dict()["state"], other.state_dict()["state"]
    assert left.keys() == right.keys()
    for place, entries in left.items():
        assert entries.keys() == right[place].keys()
        for name, value in entries.items():
            assert torch.equal(value, right[place][name]) and value.dtype == right[place][name].dtype


def test_model_and_optimizer_come_back_bit_for_bit(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(step=5), None))
    model, optimizer, _, best = restore(tmp_path)
    assert_same_state(trained[0], model)
    assert_same_optimizer(trained[1], optimizer)
    assert best is None and model.out.weight is model.embed.weight


def test_training_goes_on_as_if_never_saved(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(step=5), None))
    model, optimizer, progress, _ = restore(tmp_path)
    take_steps(*trained, 5, 9)
    take_steps(model, optimizer, progress.step, 9)
    assert_same_state(trained[0], model)
    assert_same_optimizer(trained[1], optimizer)


def test_progress_comes_back_whole(trained, tmp_path):
    history = [{"step": 3, "task": 0.1 + 0.2, "dev": 100 / 3}, {"step": 5, "learning_rate": 1e-300}]
    progress = Progress(step=5, history=history, best_step=3, best_score=100 / 3, tokens=2**53, seconds=1.5)
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, progress, None))
    assert restore(tmp_path)[2] == progress


def test_a_fresh_run_has_a_best_score_below_any_metric(trained, tmp_path):
    assert Progress().best_score < -100, "a Matthews correlation reaches -100 %"
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(), None))
    state = (tmp_path / "state.json").read_text()
    json.loads(state, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_best_weights_are_a_copy_and_come_back(trained, tmp_path):
    model, optimizer = trained
    best = snapshot(model)
    before = {name: tensor.clone() for name, tensor in best.items()}
    take_steps(model, optimizer, 5, 8)
    assert all(torch.equal(best[name], before[name]) for name in best), "training must not move a snapshot"
    save_checkpoint(str(tmp_path), take_checkpoint(model, optimizer, Progress(), best))
    again, _, _, restored = restore(tmp_path)
    assert restored.keys() == best.keys() and all(torch.equal(restored[name], best[name]) for name in best)
    load_weights(again, restored)
    assert all(torch.equal(snapshot(again)[name], best[name]) for name in best)


def test_shared_tensors_are_written_once_and_follow(trained):
    taken = snapshot(trained[0])
    assert set(taken) == {"embed.weight", "out.bias", "places"}
    other = Tied(9)
    load_weights(other, taken)
    assert torch.equal(other.out.weight, trained[0].out.weight) and other.out.weight is other.embed.weight


def test_files_are_safetensors_and_json(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(), snapshot(trained[0])))
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"}
    for name in names - {"state.json"}:
        assert load_file(tmp_path / name) and not zipfile.is_zipfile(tmp_path / name)


def test_a_checkpoint_without_its_state_is_no_checkpoint(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(), None))
    (tmp_path / "state.json").unlink()  # written last, so this is one that was cut off
    with pytest.raises(FileNotFoundError):
        restore(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(), None))
    other = nn.Linear(5, 7)
    with pytest.raises(KeyError, match="weight"):
        load_checkpoint(str(tmp_path), other, make_optimizer(other))


def change(folder, name, damage):
    file = folder / name
    data = bytearray(file.read_bytes())
    if damage == "truncated":
        del data[-1:]
    elif damage == "one bit":
        data[len(data) // 2] ^= 4
    file.unlink()
    if damage != "missing":
        file.write_bytes(data)


DAMAGES = [
    (name, damage, said)
    for name in ("model.safetensors", "optimizer.safetensors", "best.safetensors")
    for damage, said in (
        ("truncated", r"has [\d,]+ bytes instead of [\d,]+"),
        ("one bit", "is not as it was written"),
        ("missing", "is missing"),
    )
]
DAMAGES += [("state.json", "one bit", "is not")]


@pytest.mark.parametrize(("name", "damage", "said"), DAMAGES)
def test_damage_is_found_and_named_and_changes_nothing(trained, tmp_path, name, damage, said):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(step=5), snapshot(trained[0])))
    change(tmp_path, name, damage)
    model = Tied(1)
    before = snapshot(model)
    with pytest.raises(DamagedCheckpoint, match=rf"{name} {said}"):
        load_checkpoint(str(tmp_path), model, make_optimizer(model))
    assert all(torch.equal(before[key], value) for key, value in snapshot(model).items())


def test_every_bit_of_the_state_counts(trained, tmp_path):
    save_checkpoint(str(tmp_path), take_checkpoint(*trained, Progress(step=5, history=[{"task": 0.5}]), None))
    whole = (tmp_path / "state.json").read_bytes()
    for place in range(len(whole)):
        (tmp_path / "state.json").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpoint, match=r"state\.json is not"):
            read_checkpoint(str(tmp_path))


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
        patch.setattr(storage, "open_filesystem", lambda uri: (FullDisk(), uri))
        checkpoints.save(lambda: take_checkpoint(*trained, Progress(step=15), None))
        message = r"no space left to write it; free some.*'.*checkpoint_000000015/optimizer\.safetensors'"
        with pytest.raises(OSError, match=message) as raised:
            checkpoints.save(lambda: pytest.fail("nothing more is taken"))
        assert raised.value.errno == errno.ENOSPC
    assert checkpoints.newest_whole() == (str(tmp_path / "checkpoint_000000010"), [])
    assert not (tmp_path / "checkpoint_000000015").exists(), "half a checkpoint keeps the disk full"
