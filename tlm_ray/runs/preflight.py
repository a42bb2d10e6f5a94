"""Checks of a cluster before any work starts: can its nodes see the results, can a training ever start."""

import uuid

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tlm_ray import storage
from tlm_ray.runs.execution import Execution


def check_cluster(execution: Execution, *, shared_root: bool, autoscaling: bool) -> None:
    """ValueError if the storage root is local on a cluster of several nodes, or a training's request cannot be met.

    shared_root: the user says that the root is one folder on every node (NFS); every node is asked whether it sees it.
    autoscaling: the cluster adds nodes on demand, so what it has now says nothing.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if storage.is_local(execution.root) and (len(nodes) > 1 or autoscaling):
        if not shared_root:
            raise ValueError(
                f"root {execution.root!r} is local, but the cluster has {len(nodes)} nodes"
                f"{' and adds more' if autoscaling else ''}: they would not see each other's results; give a shared "
                "location (--root s3://..., gs://...), or add --shared-root if it is one folder on every node (NFS)"
            )
        _check_shared(execution.root, nodes)
    if not autoscaling:
        _check_request(execution, nodes)


def _check_shared(root: str, nodes: list[dict]) -> None:
    """Write a file and ask every node that has a CPU to read it."""
    uri = storage.join(root, f"probe-{uuid.uuid4().hex}.json")
    storage.write_json(uri, {})
    try:
        for node in nodes:
            if node["Resources"].get("CPU", 0) > 0:
                place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked = ray.remote(num_cpus=0)(storage.exists).options(scheduling_strategy=place)
                if not ray.get(asked.remote(uri)):
                    raise ValueError(
                        f"root {root!r}: node {node['NodeManagerAddress']} does not see it; "
                        "mount the same folder on every node"
                    )
    finally:
        storage.delete(uri)


def _check_request(execution: Execution, nodes: list[dict]) -> None:
    """Each worker must fit a node, and all workers of one training the cluster."""
    compute = execution.compute
    for name, amount in compute.resources.items():
        has = [node["Resources"].get(name, 0.0) for node in nodes]
        places = sum(int(h // amount) for h in has) if amount else compute.workers
        if places < compute.workers:
            raise ValueError(
                f"train_workers {compute.workers} with {amount:g} {name} each: the cluster has {sum(has):g} {name}, "
                f"room for {places}; lower --train-workers or --train-resources, or add --autoscaling if the cluster "
                "adds nodes on demand"
            )
