"""Groups of nodes that begin at none: CPU nodes come to retrieve, a training node for training alone, and it goes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_jobs import environment

pytestmark = [pytest.mark.slow, pytest.mark.long]
APART = ("unshare", "--pid", "--mount", "--net", "--fork", "--kill-child", "--mount-proc")
ALONE = 'ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs t /tmp/ray && mount -t tmpfs t /dev/shm && exec "$@"'


def test_nodes_come_and_go_as_the_work_needs_them(data, tmp_path):
    apart = [*APART, "bash", "-c", ALONE, "apart"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of processes and networks may be made here")
    script = Path(__file__).with_name("autoscaled.py")
    done = subprocess.run(
        [*apart, sys.executable, str(script), str(data), str(tmp_path)],
        env=environment(RAY_TMPDIR="/tmp/ray"), capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    events = json.loads(done.stdout.splitlines()[-1])
    begun = {name: events.index(name) for name in ("retrieval", "training", "retrieval again", "end")}
    assert events[: begun["retrieval"]] in ([], ["+head"])
    assert "+cpu" in events[begun["retrieval"] : begun["training"]]
    trainers = [i for i, event in enumerate(events) if event == "+trainer"]
    assert len(trainers) == 1 and begun["training"] < trainers[0] < begun["retrieval again"], "for training alone"
    assert trainers[0] < events.index("-trainer") < begun["end"], "gone before the driver is"
    assert events.count("-cpu") == events.count("+cpu"), "the head is alone at last"
