"""The manifests of cluster/ against KubeRay's CRDs, offline.

`kuberay/schema.json` is made from the CRDs of KubeRay v1.7 by `kuberay/compact.py`.
"""

import json
import runpy
from typing import Any

import jsonschema
import pytest
from cluster_files import KUBERNETES, ROOT, SCHEMA, cluster_spec, container, faults, gibibytes, groups, load


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
