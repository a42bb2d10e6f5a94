"""A checkpoint: what is restored is what was saved, bit for bit; what is damaged is told; nothing is unpickled."""

import json
import zipfile

import pytest
import torch
from safetensors.torch import load_file
from tied import (
    Tied,
    change,
    make_optimizer,
    make_trained,
    restore,
    take_steps,
)
from torch import nn

from tlm_ray.training.loop.checkpoints import (
    DamagedCheckpoint,
    Progress,
    load_checkpoint,
    load_weights,
    read_checkpoint,
    save_checkpoint,
    snapshot,
    take_checkpoint,
)


@pytest.fixture
def trained():
    return make_trained()


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


DAMAGES = [
    (name, damage, said)
    for name in ("model.safetensors", "optimizer.safetensors", "best.safetensors")
    for damage, said in (
        ("truncated", r"has [\d,]+ bytes instead of [\d,]+"),
        ("one bit", "is corrupt"),
        ("missing", "is missing"),
    )
]
DAMAGES += [("state.json", "one bit", "is corrupt")]


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
        with pytest.raises(DamagedCheckpoint, match=r"state\.json is corrupt"):
            read_checkpoint(str(tmp_path))
