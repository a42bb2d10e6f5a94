"""A cluster of this machine that can be broken and mended: what `fault_kinds.py` breaks."""

import contextlib
import random
import time
from typing import Any

import psutil
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

NODES, CPUS = 2, 2  # of each
SPARED = ("ray::IDLE", "ray::Dashboard", "ray::Runtime")  # Ray's own, and processes without work


class LocalCluster:
    """A head without CPUs, which only drivers connect to, and nodes that work."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the head and all nodes."""
        head = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.fill()

    def fill(self) -> None:
        """Bring new nodes for those that are gone."""
        while len(self.cluster.worker_nodes) < NODES:
            self.cluster.add_node(num_cpus=CPUS)

    def some_node(self, rng: random.Random) -> Any:
        """Choose a node, one that works if there is any."""
        nodes = list(self.cluster.worker_nodes)
        return rng.choice([node for node in nodes if working(_raylet(node))] or nodes)

    def lose(self, node: Any) -> None:
        """Kill a node, and bring a new one."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.fill()

    def drain(self, node: Any, seconds: float) -> None:
        """Give notice of a node, take it when it is empty or the time is over, and bring a new one."""
        reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
        end = time.time() + seconds
        GcsClient(address=self.cluster.address).drain_node(node.node_id, reason, "spot", int(end * 1000))
        while time.time() < end and node.live_processes() and not any(n == "raylet" for n, _ in node.dead_processes()):
            time.sleep(0.1)
        self.lose(node)

    def stop(self) -> None:
        """Kill all processes of the head and the nodes."""
        for node in self.cluster.list_all_nodes():
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


def working(below: psutil.Process, name: str = "") -> list[psutil.Process]:
    """List the processes below another that work for Ray, whose title has `name`."""
    found = []
    for process in below.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())
            if title.startswith("ray::") and name in title and not title.startswith(SPARED):
                found.append(process)
    return found


def _raylet(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def kill_worker(name: str, rng: random.Random) -> bool:
    """Kill a process that works for Ray below this one, whose title has `name`; False if there is none."""
    found = working(psutil.Process(), name)
    if not found:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        rng.choice(sorted(found, key=lambda process: process.pid)).kill()
    return True
