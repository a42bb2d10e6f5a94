"""A training of two workers on two hosts, as a job: prints the hosts' addresses and the steps as JSON."""

import json
import sys
from pathlib import Path

import ray
from small import laid_out, small_flow

from tlm_ray import make, plain_errors, ray_options
from tlm_ray.compute import Compute


def main(data: str, root: str) -> None:
    ray.init(**ray_options())
    compute = Compute(workers=2, resources={"CPU": 2.0})  # all CPUs of a host each
    flow = small_flow(Path(data), Path(root), workers=2, compute=compute, shared_root=True)
    stage = laid_out(flow).stage_one
    facts = make([stage], root)[stage.fingerprint]["facts"]
    print(json.dumps([sorted(node["NodeManagerAddress"] for node in ray.nodes()), facts["steps"]]))


if __name__ == "__main__":
    with plain_errors():
        main(*sys.argv[1:])
