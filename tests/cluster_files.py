"""The files of cluster/, opened as those who will read them do."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
KUBERNETES = ("rayjob.yaml", "raycluster.yaml")
MACHINES = ("aws.yaml", "gcp.yaml")
PLAIN_KUBERNETES = ("network.yaml", "nightly.yaml", "priorities.yaml")
SCHEMA = json.loads((ROOT / "tests" / "kuberay" / "schema.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / name).read_text())


def load_all(name: str) -> list[dict[str, Any]]:
    """All documents of a file."""
    return list(yaml.safe_load_all((CLUSTER / name).read_text()))


def faults(manifest: dict[str, Any]) -> list[str]:
    """`path: message` for whatever KubeRay's CRD or Kubernetes would refuse or silently drop."""
    schema = {"$ref": f"#/$defs/{manifest['kind']}", **SCHEMA}
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    ]


def cluster_spec(name: str) -> dict[str, Any]:
    spec = load(name)["spec"]
    return spec.get("rayClusterSpec", spec)


def groups(name: str) -> dict[str, dict[str, Any]]:
    spec = cluster_spec(name)
    return {"head": spec["headGroupSpec"]} | {g["groupName"]: g for g in spec["workerGroupSpecs"]}


def container(group: dict[str, Any]) -> dict[str, Any]:
    (only,) = group["template"]["spec"]["containers"]
    return only


def autoscaling(name: str) -> AutoscalingConfig:
    """What Ray's autoscaler makes of a file; on Kubernetes it reads the RayCluster itself."""
    config = load(name)
    if name in KUBERNETES:
        resource = {"metadata": {"name": "x", "namespace": "x"}, "spec": cluster_spec(name)}
        config = _derive_autoscaling_config_from_ray_cr(resource)
    return AutoscalingConfig(config, skip_content_hash=True)


def launched(name: str, request: dict[str, float], count: int) -> dict[str, int]:
    """The nodes that Ray's scheduler adds to an empty cluster for `count` such requests."""
    config = autoscaling(name)
    requests = [ResourceRequestUtil.make(request) for _ in range(count)]
    reply = ResourceDemandScheduler(None).schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=config.get_node_type_configs(),
            max_num_nodes=config.get_max_num_nodes(),
            resource_requests=ResourceRequestUtil.group_by_count(requests),
        )
    )
    return {launch.instance_type: launch.count for launch in reply.to_launch}


def gibibytes(quantity: str) -> int:
    assert quantity.endswith("Gi"), quantity
    return int(quantity[:-2])


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every scalar of a document with its path."""
    if not isinstance(node, dict | list):
        yield path, node
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield from leaves(value, (*path, key))
