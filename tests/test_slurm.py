"""cluster/slurm.sh, run by a Slurm of two commands: what `srun` starts on other nodes starts on this one."""

import json
import os
import random
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

BIN = Path(sys.executable).parent
SCRIPT = Path(__file__).parents[1] / "cluster" / "slurm.sh"
# As Slurm's: the names of a list, and a step with its node's variables, to which a signal is handed on.
SCONTROL = """#!/bin/bash
[ "$1 $2" = "show hostnames" ] && tr , '\\n' <<< "$3"
"""
SRUN = """#!/bin/bash
echo "$*" >> "$STEPS"
while [[ $1 == --* ]]; do shift; done
SLURM_CPUS_ON_NODE=5 SLURM_GPUS_ON_NODE=2 setsid "$@" & step=$!
trap 'kill -USR1 $step' USR1
trap 'kill -KILL $step' TERM
wait $step; wait $step
"""
DRIVER = """
import json, sys, ray
context = ray.init(log_to_driver=False)
nodes = sorted((node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0)) for node in ray.nodes())
ran = ray.get(ray.remote(num_gpus=2)(lambda: "ran").remote())
print("driver", json.dumps([nodes, ran, context.dashboard_url]))
sys.exit(7)
"""


def free_job() -> int:
    """A number of a job whose two ports nobody listens on."""
    while True:
        job = random.randrange(10_000, 1_000_000)
        try:
            for port in (20_000 + job % 5_000, 25_000 + job % 5_000):
                socket.create_server(("", port)).close()
        except OSError:
            continue
        return job


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_of_two_kinds_of_nodes_comes_up_runs_a_driver_and_goes(tmp_path: Path) -> None:
    job = free_job()
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_ID": job, "HET_SIZE": 2, "CPUS_ON_NODE": 3}
    slurm |= {"JOB_NODELIST_HET_GROUP_0": "one", "JOB_NODELIST_HET_GROUP_1": "two"}
    environment = os.environ | {f"SLURM_{name}": str(value) for name, value in slurm.items()}
    environment |= {"SLURMD_NODENAME": "one", "STEPS": str(tmp_path / "steps"), "HOME": str(tmp_path)}
    environment["PATH"] = f"{tmp_path}:{BIN}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", SCRIPT, "python", "-c", DRIVER],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 7, done.stdout[-2000:] + done.stderr[-4000:]
    (said,) = [line.removeprefix("driver ") for line in done.stdout.splitlines() if line.startswith("driver ")]
    nodes, ran, dashboard = json.loads(said)
    assert nodes == [[1.0, 0], [5.0, 2.0]], "two CPUs of the first node are the driver's"
    assert ran == "ran"
    assert dashboard.startswith("127.0.0.1:")
    (step,) = (tmp_path / "steps").read_text().split("\n--")  # one for the other node, none for the first
    assert {"--het-group=1", "--nodes=1", "--ntasks=1", "--nodelist=two"} <= set(shlex.split(step))
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
    assert not Path(f"/tmp/ray-{job}").exists()
    running = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert [command for command in running if f"/tmp/ray-{job}" in command] == []
