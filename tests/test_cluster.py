"""The files of cluster/ against those who will read them, offline: KubeRay, Ray, botocore, pip.

`kuberay/schema.json` is made from the CRDs of KubeRay v1.7 by `kuberay/compact.py`.
"""

import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import jsonschema
import pytest
import yaml
from botocore.validate import ParamValidator
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.scripts.scripts import start as ray_start

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
KUBERNETES = ("rayjob.yaml", "raycluster.yaml")
MACHINES = ("aws.yaml", "gcp.yaml")
SCHEMA = json.loads((ROOT / "tests" / "kuberay" / "schema.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / name).read_text())


def faults(manifest: dict[str, Any]) -> list[str]:
    """`path: message` for whatever KubeRay's CRD would refuse or silently drop."""
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


# Kubernetes


@pytest.mark.parametrize("name", KUBERNETES)
def test_manifest_fits_the_crd(name: str) -> None:
    assert faults(load(name)) == []


WORKER = "spec/rayClusterSpec/workerGroupSpecs/1"
TYPOS = [
    ("spec", "entrypont", "python x.py", "spec: "),
    ("spec", "backoffLimit", "3", "spec/backoffLimit: "),
    ("spec/rayClusterSpec/authOptions", "mode", "tokens", "spec/rayClusterSpec/authOptions/mode: "),
    (WORKER, "minReplica", 0, f"{WORKER}: "),
    (f"{WORKER}/template/spec/containers/0", "volumeMount", [], f"{WORKER}/template/spec/contain"),
    (
        f"{WORKER}/template/spec/volumes/0/emptyDir",
        "sizeLimit",
        "24GB",
        f"{WORKER}/template/spec/v",
    ),
    ("metadata", "lables", {}, "metadata: "),
]


@pytest.mark.parametrize(("where", "key", "value", "expected"), TYPOS)
def test_typo_is_one_fault_with_its_path(where: str, key: str, value: Any, expected: str) -> None:
    manifest = json.loads(json.dumps(load("rayjob.yaml")))  # without aliases: one typo, one place
    node = manifest
    for step in where.split("/"):
        node = node[int(step) if isinstance(node, list) else step]
    node[key] = value
    (fault,) = faults(manifest)
    assert fault.startswith(expected)
    assert key in fault


def test_job_and_standing_cluster_are_one_specification() -> None:
    assert cluster_spec("rayjob.yaml") == cluster_spec("raycluster.yaml")


def test_job_cleans_up_and_ends() -> None:
    spec = load("rayjob.yaml")["spec"]
    assert spec["shutdownAfterJobFinishes"]
    assert spec["submissionMode"] == "K8sJobMode"
    assert spec["backoffLimit"] > 0
    assert spec["activeDeadlineSeconds"] > 0
    assert (ROOT / spec["entrypoint"].split()[1]).is_file()


@pytest.mark.parametrize("group", ["head", "retrieval", "training"])
def test_pod_asks_for_what_it_may_use(group: str) -> None:
    resources = container(groups("raycluster.yaml")[group])["resources"]
    assert resources["requests"] == resources["limits"]  # or the node overcommits and kills it


def test_object_store_fits_in_shared_memory() -> None:
    training = groups("raycluster.yaml")["training"]
    (volume,) = training["template"]["spec"]["volumes"]
    assert volume["emptyDir"]["medium"] == "Memory"
    assert container(training)["volumeMounts"] == [{"name": volume["name"], "mountPath": "/dev/shm"}]
    memory = gibibytes(container(training)["resources"]["limits"]["memory"])
    # Ray's object store takes 30 % of memory and moves to disk where /dev/shm is smaller.
    assert 0.3 * memory < gibibytes(volume["emptyDir"]["sizeLimit"]) < memory


def test_gpu_pods_tolerate_the_taint_of_gpu_nodes() -> None:
    tolerations = groups("raycluster.yaml")["training"]["template"]["spec"]["tolerations"]
    assert "nvidia.com/gpu" in {toleration["key"] for toleration in tolerations}


# AWS and Google Cloud


@pytest.mark.parametrize("name", MACHINES)
def test_launcher_accepts_the_file(name: str) -> None:
    config = prepare_config(load(name))
    validate_config(config)
    assert {"retrieval", "training"} <= set(config["available_node_types"])


@pytest.mark.parametrize("name", MACHINES)
def test_launcher_refuses_a_typo(name: str) -> None:
    config = load(name)
    config["available_node_types"]["training"]["max_worker"] = 1
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(config))


@pytest.mark.parametrize("group", ["head", "retrieval", "training"])
def test_aws_node_is_a_run_instances_request(group: str) -> None:
    service = botocore.session.get_session().get_service_model("ec2")
    shape = service.operation_model("RunInstances").input_shape
    node = load("aws.yaml")["available_node_types"][group]["node_config"]
    report = ParamValidator().validate(node | {"MinCount": 1, "MaxCount": 1}, shape)
    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize("name", MACHINES)
def test_start_commands_use_options_that_ray_has(name: str) -> None:
    known = {option for parameter in ray_start.params for option in parameter.opts}
    config = load(name)
    for command in config["head_start_ray_commands"] + config["worker_start_ray_commands"]:
        assert set(re.findall(r"--[a-z-]+", command)) <= known


# All four


@pytest.mark.parametrize("name", KUBERNETES + MACHINES)
def test_both_groups_start_from_zero(name: str) -> None:
    types = autoscaling(name).get_node_type_configs()
    head = types.keys() - {"retrieval", "training"}
    assert len(head) == 1
    assert types[head.pop()].resources["CPU"] == 0
    assert types["training"].resources["GPU"] > 0
    for group in ("retrieval", "training"):
        assert types[group].min_worker_nodes == 0 < types[group].max_worker_nodes
    assert launched(name, {"CPU": 1}, 0) == {}
    assert launched(name, {"CPU": 8}, 1) == {"retrieval": 1}
    assert launched(name, {"CPU": 1, "GPU": 1}, 3) == {"training": 3}


@pytest.mark.parametrize("name", KUBERNETES)
def test_no_worker_pod_is_asked_for_by_the_manifest(name: str) -> None:
    workers = cluster_spec(name)["workerGroupSpecs"]
    assert [worker["replicas"] for worker in workers] == [0, 0]


@pytest.mark.parametrize("name", KUBERNETES + MACHINES)
def test_idle_nodes_are_given_back(name: str) -> None:
    config = autoscaling(name)
    training = config.get_node_type_configs()["training"]
    assert 0 < training.idle_timeout_s < config.get_idle_timeout_s() <= 600


@pytest.mark.parametrize("name", KUBERNETES)
def test_kubernetes_cluster_asks_for_a_token(name: str) -> None:
    assert cluster_spec(name)["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("name", MACHINES)
def test_machines_ask_for_a_token_and_receive_it(name: str) -> None:
    config = load(name)
    assert config["file_mounts"] == {"~/.ray": "~/.ray"}  # where Ray looks for auth_token
    assert any("RAY_AUTH_MODE=token" in option for option in config["docker"]["run_options"])
    for command in config["head_start_ray_commands"] + config["worker_start_ray_commands"]:
        assert "ray start" not in command or command.startswith("RAY_AUTH_MODE=token ray start")


@pytest.mark.parametrize("name", MACHINES)
def test_dashboard_listens_on_loopback(name: str) -> None:
    starts = " ".join(load(name)["head_start_ray_commands"])
    assert re.findall(r"--dashboard-host=(\S+)", starts) == ["127.0.0.1"]


@pytest.mark.parametrize("name", KUBERNETES)
def test_nothing_is_published_outside_kubernetes(name: str) -> None:
    keys = {key for path, _ in leaves(load(name)) for key in path}
    assert not keys & {"hostNetwork", "hostPort", "nodePort", "enableIngress", "ingressOptions"}
    assert groups(name)["head"]["serviceType"] == "ClusterIP"


SECRETS = re.compile(r"AKIA[0-9A-Z]{16}|-----BEGIN|\b(ghp|hf|glpat|xox[bp])[_-]\w{10,}|\beyJ\w{10,}|[0-9a-f]{32,}")


@pytest.mark.parametrize("path", sorted(CLUSTER.iterdir()), ids=lambda path: path.name)
def test_no_open_listener_and_no_secret(path: Path) -> None:
    text = path.read_text()
    assert "0.0.0.0" not in text
    assert "[::]" not in text
    assert SECRETS.search(text) is None
    assert re.search(r"(?i)(token|password|secret(_access)?_key)['\"]?\s*[:=]\s*\w{16,}", text) is None


@pytest.mark.parametrize("name", KUBERNETES)
def test_credentials_come_from_a_secret(name: str) -> None:
    for group in groups(name).values():
        assert [source.keys() for source in container(group)["envFrom"]] == [{"secretRef"}]
        assert not any(re.search("KEY|TOKEN|SECRET|PASSWORD", variable["name"]) for variable in container(group)["env"])


def images(name: str) -> set[str]:
    return {value for path, value in leaves(load(name)) if path[-1] == "image"}


@pytest.mark.parametrize("name", KUBERNETES + MACHINES)
def test_image_carries_the_version_of_the_project(name: str) -> None:
    assert images(name) == {f"REGISTRY/tlm-ray:{PROJECT['version']}"}


# The image and the page


def instructions(keyword: str) -> list[str]:
    lines = (CLUSTER / "Dockerfile").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(keyword + " ")]


def test_image_has_the_pinned_ray_and_python() -> None:
    (base,) = instructions("FROM")
    ray, python = re.fullmatch(r"rayproject/ray:([\d.]+)-py(3\d+)-gpu", base).groups()
    pins = [Requirement(line) for line in PROJECT["dependencies"]]
    (pin,) = [pin for pin in pins if pin.name == "ray"]
    assert ray in pin.specifier
    assert f"{python[0]}.{python[1:]}" in SpecifierSet(PROJECT["requires-python"])
    assert {cluster_spec(name)["rayVersion"] for name in KUBERNETES} == {ray}
    constraints = (ROOT / "constraints.txt").read_text()
    assert set(re.findall(r"(?m)^ray(?:\[.*\])?==(\S+)", constraints)) <= {ray}


def test_image_is_built_from_files_that_exist_and_are_sent() -> None:
    sent = (CLUSTER / "Dockerfile.dockerignore").read_text()
    for line in instructions("COPY"):
        for source in [word for word in line.split() if not word.startswith("--")][:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}\n" in sent


def test_image_keeps_the_user_of_its_base() -> None:
    assert instructions("USER") == []
    assert instructions("ENV") == []
    assert instructions("ARG") == []


def test_page_names_files_that_exist() -> None:
    text = (CLUSTER / "README.md").read_text()
    named = set(re.findall(r"\b(?:cluster|experiments|tests)/[\w./]+\w", text))
    assert {f"cluster/{name}" for name in KUBERNETES + MACHINES} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    assert [name for name in re.findall(r"`(\w+\.yaml)`", text) if not (CLUSTER / name).exists()] == []


# The schema


def test_schema_is_facts_only() -> None:
    text = json.dumps(SCHEMA)
    assert set(SCHEMA) == {"$defs"}
    assert '"description"' not in text
    assert len(text) < 200_000


def test_compacting_shares_repeated_parts_and_keeps_their_meaning() -> None:
    size = {"x-kubernetes-int-or-string": True, "anyOf": [], "pattern": "^[0-9]+Gi$"}
    pod = {"type": "object", "properties": {"size": size}, "required": ["size"]}
    free = {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True}
    parts = {"a": pod | {"description": "prose"}, "b": pod, "free": free}
    spec = {"type": "object", "properties": parts}
    root = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": root}}]
    crd = {"spec": {"group": "g", "names": {"kind": "K"}, "versions": versions}}
    compact = runpy.run_path(str(ROOT / "tests" / "kuberay" / "compact.py"))["compact"]

    made = compact([crd])
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/K", **made})
    document = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}}

    def accepts(spec: dict[str, Any]) -> bool:
        return validator.is_valid(document | {"spec": spec})

    assert "prose" not in json.dumps(made)
    assert len(made["$defs"]) == 2
    assert accepts({"a": {"size": "1Gi"}, "b": {"size": 1}, "free": {"anything": 1}})
    assert not accepts({"a": {"size": "1GB"}})
    assert not accepts({"b": {}})
    assert not accepts({"c": {}})
