"""All files of cluster/ against those who will read them, offline: Ray, botocore, pip."""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import botocore.session
import jsonschema
import pytest
from botocore.validate import ParamValidator
from cluster_files import (
    CLUSTER,
    KUBERNETES,
    MACHINES,
    PROJECT,
    ROOT,
    autoscaling,
    cluster_spec,
    container,
    groups,
    launched,
    leaves,
    load,
)
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ray._private.runtime_env.packaging import create_package
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start as ray_start

from tlm_ray.training.launching.launch import RAY_TRAIN_SETTINGS

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
    assert launched(name, {"CPU": 7}, 1) == {"retrieval": 1}
    assert launched(name, {"GPU": 1}, 3) == {"training": 3}
    assert launched(name, {"CPU": 1}, 10_000) == {"retrieval": types["retrieval"].max_worker_nodes}, (
        "no GPU node is used"
    )


@pytest.mark.parametrize("name", KUBERNETES)
def test_no_worker_pod_is_asked_for_by_the_manifest(name: str) -> None:
    workers = cluster_spec(name)["workerGroupSpecs"]
    assert [worker["replicas"] for worker in workers] == [0, 0]


@pytest.mark.parametrize("name", KUBERNETES + MACHINES)
def test_an_elastic_training_soon_counts_the_workers_again_after_a_lost_node(name: str) -> None:
    assert "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S" in RAY_TRAIN_SETTINGS
    assert "START_TIMEOUT" not in (CLUSTER / name).read_text(), "an environment's value would win"


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


def test_a_job_uploads_no_more_than_it_promises(tmp_path: Path) -> None:
    """Ray sends the working folder to the cluster without what .gitignore and .rayignore name."""
    shutil.copy(Path(__file__).parents[1] / ".gitignore", tmp_path)
    (tmp_path / ".rayignore").write_text("reviews.csv\n")
    (line,) = re.findall("A job uploads no .*", (Path(__file__).parents[1] / "SECURITY.md").read_text())
    promised = [f"{name}a.csv" if name.endswith("/") else name for name in re.findall("`([^`:]+)`", line)]
    assert ".rayignore" in promised
    kept = ["code.py", "tlm_ray/corpus/data.py", "own.csv"]
    left = [name for name in promised if name != ".rayignore"] + ["storage.env", "data/tasks/a.csv", "reviews.csv"]
    for name in kept + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    create_package(str(tmp_path), tmp_path / "package.zip", include_gitignore=True)
    with zipfile.ZipFile(tmp_path / "package.zip") as package:
        assert {name for name in package.namelist() if not name.endswith("/")} >= set(kept)
        assert not set(left) & set(package.namelist())


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


# The image


def instructions(keyword: str) -> list[str]:
    lines = (CLUSTER / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(keyword + " ")]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_image_has_the_pinned_ray_and_python(device: str) -> None:
    (base,) = instructions("FROM")
    ray, python = re.fullmatch(
        rf"rayproject/ray:([\d.]+)-py(3\d+)-{device}", base.replace("${DEVICE}", device)
    ).groups()
    pins = [Requirement(line) for line in PROJECT["dependencies"]]
    (pin,) = [pin for pin in pins if pin.name == "ray"]
    assert ray in pin.specifier
    assert f"{python[0]}.{python[1:]}" in SpecifierSet(PROJECT["requires-python"])
    assert {cluster_spec(name)["rayVersion"] for name in KUBERNETES} == {ray}
    constraints = (ROOT / "constraints.txt").read_text()
    assert set(re.findall(r"(?m)^ray(?:\[.*\])?==(\S+)", constraints)) <= {ray}


@pytest.mark.parametrize(
    ("device", "index"), [("cpu", ["--index-url", "https://download.pytorch.org/whl/cpu"]), ("gpu", [])]
)
def test_image_takes_torch_of_its_device_pinned_and_then_the_project(device: str, index: list[str]) -> None:
    (torch,) = re.findall(r"(?m)^torch==\S+", (ROOT / "constraints.txt").read_text())
    script = 'pip() { echo "$*"; }; mkdir() { :; }\n' + "\n".join(instructions("RUN"))
    done = subprocess.run(["sh", "-ec", script], env={"DEVICE": device}, capture_output=True, text=True, check=True)
    pinned = ["install", "--no-cache-dir", "-c", "constraints.txt"]
    assert [line.split() for line in done.stdout.splitlines()] == [
        [*pinned, *index, torch],
        [*pinned, ".[adapters,cleaning,serve]"],
    ]


def test_image_is_built_from_files_that_exist_and_are_sent() -> None:
    sent = (CLUSTER / "Dockerfile.dockerignore").read_text()
    for line in instructions("COPY"):
        for source in [word for word in line.split() if not word.startswith("--")][:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}\n" in sent


def test_image_has_all_that_the_package_is_built_from_before_it_is_installed() -> None:
    lines = (CLUSTER / "Dockerfile").read_text().splitlines()
    (installed,) = [n for n, line in enumerate(lines) if line.startswith("RUN pip") and '".[' in line]
    copied = " ".join(line for line in lines[:installed] if line.startswith("COPY"))
    assert {"setup.py", "pyproject.toml", "tlm_ray", "experiments"} <= set(copied.split()), "or `tlm` has no scripts"


def test_image_keeps_the_user_of_its_base() -> None:
    assert instructions("USER") == []
    assert instructions("ENV") == []
    assert instructions("ARG") == ["DEVICE=gpu", "DEVICE"]  # before FROM and, as FROM ends its scope, after it
