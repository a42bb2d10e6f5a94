"""What `make gpu` checks and writes, on a processor; and on a GPU where one is."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gpu_checks
from gpu_checks import CHECKS
from joints import scratch_model
from trainings import one_thread  # noqa: F401 - a fixture

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHECKS)
def test_training_is_right_on_a_device(name, device, monkeypatch):
    if device == "cpu":  # what it trains is tested elsewhere; here, that the checks work
        monkeypatch.setattr(gpu_checks, "SCHEDULE", replace(gpu_checks.SCHEDULE, steps=4, evaluate_every=2))
    assert 0 <= CHECKS[name](device)["apart"] < 0.03


def test_a_model_on_a_gpu_leaves_out_cudnns_attention(monkeypatch):
    from tlm_ray.training.model import joint

    model = scratch_model(seed=0)
    monkeypatch.setattr(joint.JointModel, "to", lambda self, device: self)
    monkeypatch.setattr(joint, "check_layouts", lambda *_, **__: None)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        model.on("cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_a_check_that_fails_says_so_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    import gpu

    def wrong(device):
        raise FloatingPointError("a loss is not finite")

    monkeypatch.setattr(gpu, "CHECKS", {"wrong": wrong, "right": lambda device: {"apart": 0.0}})
    monkeypatch.setattr(gpu, "measured", lambda *_, **__: {"tokens_per_s": 1.0})
    monkeypatch.setattr(gpu, "profiled", lambda *_: {"seconds": 1.0})
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit, match="failed: check: wrong"):
        gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["check: wrong"]["failed"] == "FloatingPointError: a loss is not finite"
    assert found["check: right"]["apart"] == 0.0 and found["machine"]["tflops_bf16"] > 0
    assert found["machine"]["plan"]["rows"] > 0
    assert ("no GPU found" in capsys.readouterr().out) == (not torch.cuda.is_available())


def test_parts_after_the_last_minute_are_left_out(tmp_path):
    import gpu

    report = gpu.Report(str(tmp_path / "gpu.json"), deadline=0.0)
    report.add("late", lambda: {"done": True})
    assert json.loads((tmp_path / "gpu.json").read_text())["late"]["left out"] == "time limit reached"


@pytest.mark.skipif(torch.cuda.is_available(), reason="takes minutes on a GPU: make gpu")
@pytest.mark.long
def test_one_command_measures_both_sides_on_a_processor(tmp_path, monkeypatch):
    import gpu

    models = {"bert": "1x64", "modernbert": "1x64"}
    monkeypatch.setattr(gpu, "CHECKS", {name: CHECKS[name] for name in list(CHECKS)[:1]})  # above are all of them
    monkeypatch.setattr(gpu, "CPU", gpu.replace(gpu.CPU, models=models, rows=2, seconds=0.1, warm=1))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu.json")])
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    for family in models:
        sides = [f"{family} 1x64, {side}" for side in ("released", "bf16, padded", "bf16, packed")]
        assert all(found[side]["tokens_per_s"] > 0 for side in sides)
        assert all(0 < found[side]["utilisation"] < 1.5 for side in sides[1:])
        assert sum(found[f"{family} 1x64, profile"]["operations"].values()) <= 1.01
