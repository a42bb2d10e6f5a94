"""The manifests of cluster/ against KubeRay's CRDs and Kubernetes' own kinds, offline.

`kuberay/schema.json` is made from the CRDs of KubeRay v1.7 and the OpenAPI of Kubernetes 1.37 by `kuberay/compact.py`.
"""

import json
import runpy
from typing import Any

import jsonschema
import pytest
import yaml
from cluster_files import (
    KUBERNETES,
    PLAIN_KUBERNETES,
    ROOT,
    SCHEMA,
    cluster_spec,
    container,
    faults,
    gibibytes,
    groups,
    leaves,
    load,
    load_all,
)


@pytest.mark.parametrize("name", KUBERNETES + PLAIN_KUBERNETES)
def test_manifest_is_what_kubernetes_takes(name: str) -> None:
    assert [fault for document in load_all(name) for fault in faults(document)] == []


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


@pytest.mark.parametrize("group", ["retrieval", "training"])
def test_a_worker_pod_fits_a_machine_of_8_cpus_and_32_gib_with_what_the_node_keeps(group: str) -> None:
    requests = container(groups("raycluster.yaml")[group])["resources"]["requests"]
    assert float(requests["cpu"]) <= 7 and gibibytes(requests["memory"]) <= 26


@pytest.mark.parametrize("group", ["head", "retrieval", "training"])
def test_a_pod_has_time_to_drain_its_node(group: str) -> None:
    spec = groups("raycluster.yaml")[group]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in container(groups("raycluster.yaml")[group])["env"]}
    assert int(env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"]) < spec["terminationGracePeriodSeconds"]


def test_gpu_pods_tolerate_the_taint_of_gpu_nodes() -> None:
    tolerations = groups("raycluster.yaml")["training"]["template"]["spec"]["tolerations"]
    assert "nvidia.com/gpu" in {toleration["key"] for toleration in tolerations}


PLAIN_TYPOS = [
    ("network.yaml", "spec", "ingres", []),
    ("network.yaml", "spec/podSelector", "matchLabel", {}),
    ("network.yaml", "spec/ingress/0", "port", []),
    ("nightly.yaml", "spec", "timezone", "Etc/UTC"),
    ("nightly.yaml", "spec/jobTemplate/spec/template/spec/containers/0", "imagePolicy", "Always"),
    ("priorities.yaml", "metadata", "lables", {}),
]


@pytest.mark.parametrize(("name", "where", "key", "value"), PLAIN_TYPOS)
def test_typo_in_a_kind_of_kubernetes_is_one_fault_with_its_path(name: str, where: str, key: str, value: Any) -> None:
    manifest = node = json.loads(json.dumps(load_all(name)[0]))
    for step in where.split("/"):
        node = node[int(step) if isinstance(node, list) else step]
    node[key] = value
    (fault,) = faults(manifest)
    assert fault.startswith(f"{where}: ") and key in fault


@pytest.mark.parametrize("name", KUBERNETES)
def test_training_goes_before_retrieval_and_both_after_what_has_no_class(name: str) -> None:
    values = {document["metadata"]["name"]: document["value"] for document in load_all("priorities.yaml")}
    of = {group: groups(name)[group]["template"]["spec"].get("priorityClassName") for group in groups(name)}
    assert of.pop("head") is None
    assert values.keys() == set(of.values())
    # below -10 the node pools' autoscaler adds no machine: its --expendable-pods-priority-cutoff
    assert -10 <= values[of["retrieval"]] < values[of["training"]] < 0


RAY, HEAD = {"ray.io/is-ray-node": "yes", "ray.io/node-type": "worker"}, {"ray.io/node-type": "head"}
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}


def selects(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    return selector is not None and selector.get("matchLabels", {}).items() <= labels.items()


def admitted(source: dict[str, str], to: dict[str, str], port: int, *, same_namespace: bool) -> bool:
    """Whether the policies let a pod reach a port of another; what no policy selects is open."""
    policies = [each["spec"] for each in load_all("network.yaml") if selects(each["spec"]["podSelector"], to)]
    rules = [rule for policy in policies for rule in policy["ingress"]]
    return not policies or any(
        selects(peer.get("podSelector"), source) and (same_namespace or "namespaceSelector" in peer)
        for rule in rules
        if port in [each["port"] for each in rule.get("ports", [{"port": port}])]
        for peer in rule["from"]
    )


@pytest.mark.parametrize(
    ("source", "same_namespace", "gcs", "dashboard"),
    [
        (RAY, True, True, True),
        (RAY | HEAD, True, True, True),
        ({"app": "submitter"}, True, False, True),
        (OPERATOR, False, False, True),
        ({"app": "submitter"}, False, False, False),
        (RAY, False, False, False),
    ],
)
def test_who_reaches_the_head(source: dict[str, str], same_namespace: bool, gcs: bool, dashboard: bool) -> None:
    reached = [admitted(source, RAY | HEAD, port, same_namespace=same_namespace) for port in (6379, 8265)]
    assert reached == [gcs, dashboard]
    assert admitted(source, RAY, 8265, same_namespace=same_namespace) == gcs, "a worker has no dashboard to offer"


def test_prometheus_reads_the_metrics_of_every_pod_and_nothing_else() -> None:
    prometheus = {"app.kubernetes.io/name": "prometheus"}
    for to in (RAY, RAY | HEAD):
        assert [admitted(prometheus, to, port, same_namespace=False) for port in (8080, 6379)] == [True, False]
    assert not admitted(OPERATOR, RAY, 8080, same_namespace=False)


def test_what_pods_reach_themselves_is_open() -> None:
    assert [document["spec"]["policyTypes"] for document in load_all("network.yaml")] == [["Ingress"]] * 3


def test_a_night_is_sent_to_the_standing_cluster_with_its_token() -> None:
    cluster = load("raycluster.yaml")["metadata"]["name"]
    spec = load("nightly.yaml")["spec"]
    (submit,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert f"http://{cluster}-head-svc:8265" in submit["command"]  # KubeRay's name for the head's service
    variables = {each["name"]: each for each in submit["env"]}
    assert variables["RAY_AUTH_MODE"]["value"] == "token"
    assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": cluster, "key": "auth_token"}
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0, (
        "or a second attempt starts a second sweep beside the first"
    )


def test_the_collector_of_the_page_fits_the_crd() -> None:
    page = (ROOT / "cluster" / "kubernetes.md").read_text()
    (fragment,) = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    manifest = load("raycluster.yaml")
    manifest["spec"] |= yaml.safe_load(fragment)
    assert faults(manifest) == []
    assert "historyServerOptions" in manifest["spec"]


def test_schema_is_facts_only() -> None:
    assert set(SCHEMA) == {"$defs"}
    assert [path for path, value in leaves(SCHEMA) if path[-1] == "description" and isinstance(value, str)] == []
    assert len(json.dumps(SCHEMA)) < 200_000


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


def test_a_kind_of_kubernetes_is_written_out_as_a_crd() -> None:
    compact = runpy.run_path(str(ROOT / "tests" / "kuberay" / "compact.py"))
    name = {"type": ["string", "null"], "description": "prose"}
    port = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
    own = {"x-kubernetes-group-version-kind": [{"group": "g", "kind": "K", "version": "v1"}]}
    kind = {"type": ["object", "null"], "properties": {"spec": {"$ref": "#/$defs/Spec"}}} | own
    spec = {"type": ["object", "null"], "properties": {"name": name, "port": port}}
    definitions = {f"io.k8s.api.{each}": kind for each in compact["KINDS"]} | {"Spec": spec}
    made = compact["compact"](compact["own_kinds"](definitions)[:1])
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/K", **made})
    document = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}}
    assert validator.is_valid(document | {"spec": {"name": "a", "port": 80}})
    assert validator.is_valid(document | {"spec": {"port": "http"}})
    assert not validator.is_valid(document | {"spec": {"ports": 80}})
    assert not validator.is_valid(document | {"spec": {"name": 80}})
    assert not validator.is_valid(document)
