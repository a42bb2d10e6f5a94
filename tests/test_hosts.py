"""A submitted job on two hosts, which have names and addresses of their own: network namespaces of this machine."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from test_autoscaling import APART
from test_jobs import BIN, REPOSITORY, environment

pytestmark = pytest.mark.slow
WIRE = "ip link add wire type bridge && ip link add wire1 type veth peer name wire2 && mount -t tmpfs t /run"


@pytest.mark.long
def test_a_submitted_job_trains_over_two_hosts(data, tmp_path):
    if not shutil.which("ip") or subprocess.run([*APART, "bash", "-c", WIRE], capture_output=True).returncode:
        pytest.skip("no network namespaces, or no bridges and pairs of interfaces between them, may be made here")
    hosts = [*APART, "bash", str(Path(__file__).with_name("hosts.sh")), str(tmp_path)]
    submit = [f"{BIN}/ray", "job", "submit", "--address", "http://10.77.0.1:8265", "--working-dir", "tests"]
    path = {"RAY_TMPDIR": "/tmp/ray", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*hosts, *submit, "--", "python", "hosted.py", str(data), str(tmp_path / "tlm")],
        cwd=REPOSITORY, env=environment(**path), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (found,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert found == [["10.77.0.1", "10.77.0.2"], 12]
