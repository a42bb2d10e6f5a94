"""What a training held is free again when its controller is gone, on a Ray with room for one training alone."""

import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 600  # a training of the small data takes 20 s; what waits for a place that nobody frees waits for ever

LOST_CONTROLLER = """
import os, signal, sys, threading, time
from pathlib import Path

import pytest
import psutil, ray
from small import long_recipe, small_flow
from tlm_ray import make, ray_options
from tlm_ray.compute import Compute
ray.init(address="local", num_cpus=2, **ray_options())
flow = small_flow(Path(sys.argv[1]), Path(sys.argv[2]), compute=Compute(workers=2))
stage = flow.stages(long_recipe(), "topics", 0).stage_one
folder = Path(stage.folder(sys.argv[2]))

def kill_the_controller():
    while not list(folder.glob("checkpoints/checkpoint_*/state.json")):
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("ray::TrainContr"):  # 15 letters are what Linux keeps of a name
            process.send_signal(signal.SIGKILL)
            print("the test killed it", flush=True)
            return

threading.Thread(target=kill_the_controller, daemon=True).start()
print(make([stage], sys.argv[2])[stage.fingerprint]["facts"]["steps"], "steps")
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_lost_controller_frees_the_only_place_for_its_successor(data, tmp_path):
    command = [sys.executable, "-c", LOST_CONTROLLER, str(data), str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the test killed it" in done.stdout and "120 steps" in done.stdout, done.stdout
