"""What several test modules share: one small Ray, and small data whose classes speak of different things."""

import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ.pop("RAY_ADDRESS", None)
# Ray's workers import what a test module defines; a script's own classes travel to them by value
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

NUMBERS = itertools.count()
SEA = "wave tide harbour sail anchor current reef fish net storm salt shore buoy deck crew"
SKY = "cloud wing star comet orbit moon lift drag pilot cabin runway radar jet thermal dusk"
KITCHEN = "flour oven knead simmer garlic butter whisk broth pepper dough roast skillet sugar herb mince"
TOPICS = {"sea": SEA.split(" "), "sky": SKY.split(" "), "kitchen": KITCHEN.split(" ")}
COMMON = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "it",
    "that",
    "for",
    "on",
    "with",
    "as",
    "by",
    "from",
    "at",
    "this",
    "or",
    "an",
    "are",
]


def sentences(generator: np.random.Generator, topic: str, count: int) -> str:
    """Make sentences of common words and words of a topic."""
    made = []
    for _ in range(count):
        words = [
            str(generator.choice(TOPICS[topic] if generator.random() < 0.5 else COMMON))
            for _ in range(generator.integers(6, 14))
        ]
        made.append(" ".join(words).capitalize() + ".")
    return " ".join(made)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a Ray as slow, and begin with the files of slow tests, so that both processes end together."""
    for item in items:
        if "ray_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpus/*.parquet (400 documents) and tasks/topics/{train,dev,test}.parquet (60, 24, 24 rows)."""
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "corpus").mkdir()
    (folder / "tasks" / "topics").mkdir(parents=True)
    for part in range(4):
        texts = [
            sentences(generator, str(generator.choice(list(TOPICS))), int(generator.integers(1, 9))) for _ in range(100)
        ]
        pq.write_table(pa.table({"text": texts}), folder / "corpus" / f"part-{part}.parquet")
    for split, rows in (("train", 60), ("dev", 24), ("test", 24)):
        labels = [list(TOPICS)[i % 3] for i in range(rows)]
        texts = [sentences(generator, label, 2) for label in labels]
        pq.write_table(pa.table({"text": texts, "label": labels}), folder / "tasks" / "topics" / f"{split}.parquet")
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


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray of its own, with more CPUs than the machine may have: two trainings of two workers fit."""
    import ray

    from tlm_ray import ray_options

    ray.init(address="local", num_cpus=4, **ray_options())
    yield
    ray.shutdown()
