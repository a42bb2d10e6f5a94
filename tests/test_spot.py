"""A node that is about to go: a training leaves it after the next step, and it gets no more items."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_jobs import environment

pytestmark = pytest.mark.slow

SETTING = """
import atexit, json, sys, time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import ray
from ray._private.state import available_resources_per_node
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2
from waiting import wait_for

from tlm_ray import ray_private

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
atexit.register(lambda: (ray.shutdown(), cluster.shutdown()))  # or its address stays behind, for other tests
for _ in range(2):
    cluster.add_node(num_cpus=CPUS)
ray.init(address=cluster.address, log_to_driver=False)

def drain(node):
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=cluster.address).drain_node(node, reason, "spot", int(1000 * (time.time() + 60)))
    assert accepted, why

def alive():
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
"""

TRAINING = """
from small import long_recipe, small_flow
from tlm_ray import make
from tlm_ray.training.loop.optimizers import AdamW
from tlm_ray.compute import Compute

data, root, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
taken = root / "steps"

@dataclass(frozen=True, kw_only=True)
class Counted(AdamW):
    def make(self, model, **options):
        made = super().make(model, **options)
        made.register_step_post_hook(self.count)
        return made

    def count(self, *_):
        with taken.open("a") as file:
            file.write(".")

long = replace(long_recipe(), optimizer=Counted())
def notice():
    wait_for(lambda: taken.exists() and taken.stat().st_size > 100, every_s=0.01)
    left = available_resources_per_node()  # of those that are alive
    cpus = {node.node_id: left[node.node_id].get("CPU", 0) for node in cluster.worker_nodes if node.node_id in left}
    (drained,) = (node for node in cpus if cpus[node] == 2 - workers)
    drain(drained)
    wait_for(lambda: drained not in alive())  # it goes when it is idle, long before its time

recipe = replace(long, stage_one=replace(long.stage_one, steps=400 // workers, evaluate_every=400))
flow = small_flow(data, root, compute=Compute(workers=workers, max_failures=0))
stage = flow.stages(recipe, "topics", 0).stage_one
make(list(stage.inputs.values()), str(root))  # or a slow machine is still at them when the notice has waited for long
with ThreadPoolExecutor() as threads:
    noticed = threads.submit(notice)
    make([stage], str(root))
    noticed.result()
print("found", json.dumps(taken.stat().st_size))
"""

ITEMS = """
from tlm_ray import parallel

class Place:
    def __call__(self, item):
        node = ray.get_runtime_context().get_node_id()
        time.sleep(0.05)  # or all items are done before the notice is seen
        return {"node": node, "number": item["number"], "begun": time.time()}

rows, drained, seen = [], None, 0.0
for row in parallel.each([{"number": n} for n in range(300)], Place, arguments=(), workers=2, title="places"):
    rows.append(row)
    if len(rows) == 20:
        drained = row["node"]
        drain(drained)
        wait_for(lambda: drained in ray_private.draining_nodes() or drained not in alive())
        seen = time.time()
late = sum(row["node"] == drained and row["begun"] > seen for row in rows)
after = sum(row["begun"] > seen for row in rows)
print("found", json.dumps({"numbers": sorted(row["number"] for row in rows), "late": late, "after": after}))
"""


def run(script: str, *arguments: str, cpus: int = 2) -> str:
    """Run a script after the setting, with two nodes of so many CPUs; return what it printed."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", f"CPUS = {cpus}\n{SETTING}{script}", *arguments]
    done = subprocess.run(command, env=environment(PYTHONPATH=path), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def found(said: str) -> list[Any]:
    """Return what a script found."""
    return [json.loads(line.removeprefix("found ")) for line in said.splitlines() if line.startswith("found ")]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_training_leaves_a_node_that_is_about_to_go_and_repeats_no_step(data, tmp_path, workers):
    said = run(TRAINING, str(data), str(tmp_path), str(workers))
    assert "leaves a node that is about to go, at step" in " ".join(said.split())
    assert found(said) == [400]


@pytest.mark.long
def test_a_node_that_is_about_to_go_gets_no_more_items():
    (made,) = found(run(ITEMS))
    assert made["numbers"] == list(range(300))
    assert made["after"] > 2 >= made["late"], "those that were on their way already"
