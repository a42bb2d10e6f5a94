"""A driver on an autoscaling cluster of local nodes: prints what was begun and which nodes came and went, as JSON.

    unshare --pid --mount --net --fork --kill-child --mount-proc python tests/autoscaled.py DATA ROOT

Ray's own fake nodes stand for machines; the head has no CPU, both groups begin at none. In namespaces of its own, for
the head listens on fixed ports, and its sessions lie in a folder that others on this machine use too.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

PORT = 6379  # which fake nodes connect to, whatever the head listens on
GROUPS = {"cpu": {"CPU": 2}, "trainer": {"CPU": 0, "trainer": 1}}
HEAD = "ray.head.default"  # as Ray's provider of fake nodes calls it
IDLE_MINUTES = 0.1
EMPTY = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", "rsync_filter"),
    *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude"),
)


def start_head(folder: Path) -> None:
    """Start a head without CPUs whose autoscaler starts nodes of the groups as processes."""
    kinds = {name: {"resources": has, "node_config": {}, "max_workers": 2} for name, has in GROUPS.items()}
    fake = {"type": "fake_multinode", "use_node_id_as_ip": True, "disable_node_updaters": True}
    config = {
        "cluster_name": "fake_multinode",
        "max_workers": 4,
        "head_node_type": HEAD,
        "available_node_types": kinds | {HEAD: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}},
        "provider": fake | {"disable_launch_config_check": True},
        "idle_timeout_minutes": IDLE_MINUTES,
        "upscaling_speed": 1.0,
        **{"auth": {}, "docker": {}, "file_mounts": {}, "file_mounts_sync_continuously": False},
        **{name: [] for name in EMPTY},
    }
    (folder / "cluster.json").write_text(json.dumps(config))
    command = ["ray", "start", "--head", "--num-cpus=0", f"--port={PORT}", "--include-dashboard=false"]
    command += [f"--autoscaling-config={folder / 'cluster.json'}", "--object-store-memory=200000000"]
    subprocess.run(
        command, env=os.environ | {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


class Watch:
    """Notes when nodes come and go, and what the driver says."""

    def __init__(self):
        self.events, self.alive, self.done = [], {}, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def say(self, what: str) -> None:
        self.events.append(what)
        print(what, file=sys.stderr, flush=True)

    def _watch(self) -> None:
        import ray

        while not self.done.wait(0.3):
            alive = {node["NodeID"]: _group(node["Resources"]) for node in ray.nodes() if node["Alive"]}
            for node in alive.keys() - self.alive.keys():
                self.say(f"+{alive[node]}")
            for node in self.alive.keys() - alive.keys():
                self.say(f"-{self.alive[node]}")
            self.alive = alive

    def until_gone(self, group: str, timeout_s: float) -> None:
        """Wait until no node of a group is there."""
        deadline = time.monotonic() + timeout_s
        while group in self.alive.values() and time.monotonic() < deadline:
            time.sleep(0.3)


def _group(resources: dict[str, float]) -> str:
    return next((name for name in ("trainer", "CPU") if resources.get(name)), "head").lower()


def main(data: str, root: str) -> None:
    start_head(Path(root))
    import ray
    from small import laid_out, small_flow

    from tlm_ray.compute import Compute
    from tlm_ray.runs.stages.making import make

    ray.init(address=f"127.0.0.1:{PORT}", log_to_driver=False, logging_level="ERROR")
    watch = Watch()
    compute = Compute(resources={"trainer": 1.0})
    flow = small_flow(Path(data), Path(root) / "tlm", workers=2, autoscaling=True, compute=compute)
    stages = laid_out(flow)
    for what, stage in {"retrieval": stages.blocks, "training": stages.metrics}.items():
        watch.say(what)
        make([stage], flow.execution.root)
    watch.say("retrieval again")
    make([laid_out(flow, method="dsir").neighbours], flow.execution.root)
    watch.until_gone("trainer", 60)
    watch.say("end")
    watch.until_gone("cpu", 60)
    watch.done.set()
    watch.thread.join()
    print(json.dumps(watch.events))


if __name__ == "__main__":
    main(*sys.argv[1:])
