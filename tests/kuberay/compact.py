"""Turn KubeRay's CRDs and Kubernetes' own kinds into the compact, strict JSON schema that the tests read.

    python tests/kuberay/compact.py rayclusters.yaml rayjobs.yaml _definitions.json > tests/kuberay/schema.json

The first two are `crds/ray.io_rayclusters.yaml` and `crds/ray.io_rayjobs.yaml` of KubeRay's helm
chart `kuberay-operator`, v1.7 (https://github.com/ray-project/kuberay, Apache-2.0), the third is
`kubernetes-json-schema/v1.37.0-local/_definitions.json` of the package kubernetes-validate 1.37.0,
which is Kubernetes' OpenAPI (Apache-2.0). Kept: keys,
types, enums, patterns, limits, required, int-or-string, preserve-unknown-fields. Left out: prose,
defaults, `status`, and the CEL rules, which only an API server can evaluate. Equal sub-schemas are
written once, under `$defs` (a pod template occurs five times).
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

VERSION = "v1"
KINDS = ("networking.v1.NetworkPolicy", "scheduling.v1.PriorityClass", "batch.v1.CronJob")
INT_OR_STRING = ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity")
LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
FACTS = frozenset(("type", "enum", "pattern", "required", *LIMITS))
SHARED_FROM = 60  # characters; a shorter schema is no longer than a reference and its definition
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {  # a CRD leaves ObjectMeta to the API server; these are the keys a person writes
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": TEXTS,
        "annotations": TEXTS,
    },
}


def strict(node: dict[str, Any]) -> dict[str, Any]:
    """One OpenAPI v3 structural schema as JSON schema that refuses the keys it does not name."""
    out = {key: value for key, value in node.items() if key in FACTS}
    if node.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    elif node.get("nullable"):
        out["type"] = [out["type"], "null"]
    if "properties" in node:
        out["properties"] = {name: strict(sub) for name, sub in node["properties"].items()}
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    for key in {"items", "additionalProperties"} & node.keys():
        out[key] = strict(node[key])
    return out


def manifest(crd: dict[str, Any]) -> dict[str, Any]:
    """The schema of one manifest of this CRD: what a person writes, so no `status`."""
    version = next(v for v in crd["spec"]["versions"] if v["name"] == VERSION)
    found = strict(version["schema"]["openAPIV3Schema"])
    found["properties"].pop("status", None)
    found["properties"] |= {
        "apiVersion": {"enum": [f"{crd['spec']['group']}/{VERSION}"]},
        "kind": {"enum": [crd["spec"]["names"]["kind"]]},
        "metadata": METADATA,
    }
    found["required"] = ["apiVersion", "kind", "metadata", "spec" if "spec" in found["properties"] else "value"]
    return found


def written_out(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema of Kubernetes' OpenAPI as a CRD writes it: no references, one type each."""
    if isinstance(node, list):
        return [written_out(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref", "").removeprefix("#/$defs/")
    if name in INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True}
    if name:
        return written_out(definitions[name], definitions)
    out = {key: written_out(value, definitions) for key, value in node.items()}
    if isinstance(out.get("type"), list):
        (out["type"],) = (each for each in out["type"] if each != "null")
    return out


def own_kinds(definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Kubernetes' own KINDS in the form of CRDs."""
    schemas = [written_out(definitions[f"io.k8s.api.{name}"], definitions) for name in KINDS]
    kinds = [schema["x-kubernetes-group-version-kind"][0] for schema in schemas]
    return [
        {
            "spec": {
                "group": kind["group"],
                "names": {"kind": kind["kind"]},
                "versions": [{"name": kind["version"], "schema": {"openAPIV3Schema": schema}}],
            }
        }
        for kind, schema in zip(kinds, schemas, strict=True)
    ]


def text(node: Any) -> str:
    return json.dumps(node, sort_keys=True, separators=(",", ":"))


def children(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas directly inside a schema; `additionalProperties: false` is none."""
    inner = [node.get("items"), node.get("additionalProperties")]
    return [sub for sub in [*node.get("properties", {}).values(), *inner] if isinstance(sub, dict)]


def count(node: dict[str, Any], seen: Counter[str]) -> None:
    """How often each sub-schema is written; inside one that was seen before, nothing is."""
    seen[text(node)] += 1
    if seen[text(node)] == 1:
        for child in children(node):
            count(child, seen)


def share(node: dict[str, Any], seen: Counter[str], defs: dict[str, Any]) -> dict[str, Any]:
    """The same schema with every repeated sub-schema replaced by a reference into `defs`."""
    key = text(node)
    repeated = seen[key] > 1 and len(key) >= SHARED_FROM
    if repeated and key in defs:
        return {"$ref": f"#/$defs/{list(defs).index(key)}"}
    if repeated:
        defs[key] = None  # takes its number before its own parts take theirs
    out = dict(node)
    if "properties" in node:
        out["properties"] = {k: share(sub, seen, defs) for k, sub in node["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            out[inner] = share(node[inner], seen, defs)
    if not repeated:
        return out
    defs[key] = out
    return {"$ref": f"#/$defs/{list(defs).index(key)}"}


def compact(crds: list[dict[str, Any]]) -> dict[str, Any]:
    """`{"$defs": {...}}` with one definition per kind and one per repeated sub-schema."""
    schemas = {crd["spec"]["names"]["kind"]: manifest(crd) for crd in crds}
    seen: Counter[str] = Counter()
    for schema in schemas.values():
        count(schema, seen)
    defs: dict[str, Any] = {}
    kinds = {kind: share(schema, seen, defs) for kind, schema in schemas.items()}
    return {"$defs": kinds | {str(i): schema for i, schema in enumerate(defs.values())}}


if __name__ == "__main__":
    read = [yaml.safe_load(Path(path).read_text()) for path in sys.argv[1:]]
    print(text(compact([crd for each in read for crd in (own_kinds(each["$defs"]) if "$defs" in each else [each])])))
