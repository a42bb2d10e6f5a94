"""What several test modules share: one small Ray, small data and places for results."""

import itertools
import logging
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # they have a process of their own, wherever Ray Data is used
os.environ.pop("RAY_ADDRESS", None)
# a worker process for each CPU, which Ray starts before there is work: 1.4 s of each start on two cores
os.environ |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
# one thread per process, as a training has: two of them mostly wait for each other where models are small. They took
# three test files 175 s of CPU instead of 122 (two cores, torch 2.13).
os.environ["OMP_NUM_THREADS"] = "1"
# Ray's workers import what a test module defines; a script's own classes travel to them by value
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

NUMBERS = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a Ray as slow, and begin with the files of slow tests, so that both processes end together."""
    for item in items:
        if "ray_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
        if item.get_closest_marker("long") and not os.environ.get("TLM_RAY_LONG"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; set TLM_RAY_LONG=1"))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpus/*.parquet (400 documents) and tasks/topics/{train,dev,test}.parquet (60, 24, 24 rows)."""
    from small_data import write_small  # numpy reads the number of threads when it is imported

    folder = tmp_path_factory.mktemp("data")
    write_small(folder)
    return folder


@pytest.fixture(scope="module")
def s3_query() -> Iterator[str]:
    """The query string that leads S3 locations to a store of moto's."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"?endpoint_override=http%3A%2F%2F{host}%3A{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
    server.stop()


@pytest.fixture(params=["local", "file", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty location on each kind of filesystem."""
    from tlm_ray import storage

    if request.param == "local":
        return str(tmp_path)
    if request.param == "file":
        return tmp_path.as_uri()
    uri = f"s3://key:secret@bucket-{next(NUMBERS)}/a/prefix{request.getfixturevalue('s3_query')}"
    filesystem, path = storage.open_filesystem(uri)
    filesystem.create_dir(path.partition("/")[0])
    return uri


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the hub's data sets, which lies in a local folder."""
    import huggingface_hub
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    root = tmp_path / "hub"
    (root / "datasets").mkdir(parents=True)
    there = DirFileSystem(path=str(root), fs=LocalFileSystem())
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: there)
    return root / "datasets"


@pytest.fixture(scope="session", autouse=True)
def own_ray() -> Iterator[None]:
    """Keep every Ray of the tests in a folder of its own: one that was killed elsewhere left its address in /tmp/ray.

    A socket's path may have 107 bytes, and pytest's folders have more.
    """
    os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield
    shutil.rmtree(os.environ.pop("RAY_TMPDIR"), ignore_errors=True)


@pytest.fixture
def alone() -> Iterator[None]:
    """Ray's work in this process."""
    from alone import in_this_process

    with in_this_process():
        yield


@pytest.fixture
def no_cluster(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's work in this process, and no look at its nodes before."""
    import sklearn.svm  # noqa: F401 - two threads at its first import can see it half done; with Ray each is a process

    from tlm_ray.runs import experiment

    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: replace(execution, workers=1, side_by_side=1))


@pytest.fixture
def called(
    no_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a script as a reader would in a folder of his own, but in this process, and return what it printed."""
    import ray
    from tracked import empty_store

    empty_store(tmp_path)
    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.chdir(tmp_path)

    def run(script: str | Path, *words: str) -> str:
        file = Path(__file__).parents[1] / script
        monkeypatch.setattr(sys, "argv", [str(script), *words])
        monkeypatch.syspath_prepend(file.parent)  # as Python does with a script's folder
        runpy.run_path(str(file), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray of its own with two CPUs, enough for a training of two workers.

    With four it starts more processes: two files of tests took 104 s of CPU instead of 88.

    It is started again if Ray gives up, as it does on a busy machine after 30 s.
    """
    import ray

    from tlm_ray import ray_options

    try:
        ray.init(address="local", num_cpus=2, **ray_options())
    except Exception:  # it has no class of its own
        ray.shutdown()
        ray.init(address="local", num_cpus=2, **ray_options())
    yield
    ray.shutdown()
