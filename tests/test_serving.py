"""A model behind HTTP: the answers are the model's, bad requests are refused, and a killed replica loses none."""

import asyncio
import json
import os
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import aiohttp
import numpy as np
import psutil
import pytest
import ray.serve
from test_inference import TEXTS, make_model, probabilities_of_transformers
from test_jobs import REPOSITORY, environment, free_port
from waiting import wait_for

from tlm_ray.serving import service
from tlm_ray.serving.bodies import Refused, read_body, read_request
from tlm_ray.serving.service import build
from tlm_ray.serving.settings import Limits, Service

PAGE = (REPOSITORY / "docs" / "serving.md").read_text()
LIMITS = Limits(max_texts=3, max_megabytes=0.001)
LABELS = ["sea", "sky", "kitchen"]  # of make_model

HOSTILE = {
    "no JSON": (b"texts", 400, "body: is no JSON"),
    "a list": (b"[]", 400, "body: is a list; send an object"),
    "invalid UTF-8": (b'{"texts": ["\xff"]}', 400, "body: is no UTF-8 at byte 12"),
    "lists in lists": (b"[" * 900_000, 400, "body: is no JSON"),
    "a number of many digits": (b'{"top": ' + b"9" * 9_000 + b"}", 400, "body: is no JSON"),
    "nothing": (b"{}", 400, "texts None: must be a list"),
    "one text": (b'{"texts": "one"}', 400, "texts 'one': must be a list"),
    "no texts": (b'{"texts": []}', 400, "texts []: must be a list"),
    "too many texts": (json.dumps({"texts": ["x"] * 10**6}).encode(), 413, "texts: has 1,000,000 texts; send 3"),
    "a number": (b'{"texts": ["x", 1]}', 400, "texts, row 1: 1 is no text"),
    "half a letter": (b'{"texts": ["\\ud800"]}', 400, "texts, row 0: has half of a surrogate pair"),
    "deep inside": (b'{"texts": [' + b"[" * 500 + b"]" * 500 + b"]}", 400, "texts, row 0: "),
    "another field": (b'{"texts": ["x"], "inputs": 1}', 400, "'inputs': is no field; allowed are texts, pairs, top"),
    "too few pairs": (b'{"texts": ["x", "y"], "pairs": ["x"]}', 400, "pairs: has 1 texts for 2 of texts"),
    "a million labels": (b'{"texts": ["x"], "top": 1000000}', 400, "top 1000000: must be a whole number from 1 to 3"),
    "no label": (b'{"texts": ["x"], "top": 0}', 400, "top 0: must be"),
    "true": (b'{"texts": ["x"], "top": true}', 400, "top True: must be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_in_one_short_line(name):
    body, status, message = HOSTILE[name]
    with pytest.raises(Refused) as caught:
        read_request(body, LIMITS, len(LABELS))
    said = str(caught.value)
    assert caught.value.status == status and said.startswith(message)
    assert said.isascii() and said.isprintable() and len(said) < 250


def test_a_body_is_read_to_its_limit_and_no_further():
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"x" * 300

    with pytest.raises(Refused, match="body: is larger than 1,000 bytes"):
        asyncio.run(read_body(chunks(), None, LIMITS))
    assert read == 4
    with pytest.raises(Refused, match="larger") as caught:
        asyncio.run(read_body(chunks(), "9" * 5_000, LIMITS))
    assert read == 4 and caught.value.status == 413


def test_a_request_has_texts_and_may_have_pairs():
    assert read_request(b'{"texts": ["a"]}', LIMITS, 3).columns == [["a"]]
    asked = read_request('{"texts": ["ä"], "pairs": ["\\ud83d\\ude00"], "top": 3}'.encode(), LIMITS, 3)
    assert asked.columns == [["ä"], ["😀"]] and asked.top == 3


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def session_folder() -> Iterator[Path]:
    """The folder of the service's Ray."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def address(model, session_folder):
    """The address of a service of two replicas and a queue of four, which ends cleanly when it is interrupted."""
    port = free_port()
    options = ["--model", model, "--port", str(port), "--replicas", "2", "--queue", "4", "--cpus", "0.5"]
    command = [sys.executable, "experiments/serve.py", *options]
    env = environment(RAY_TMPDIR=str(session_folder))
    with subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and "predict: ready" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        processes = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    wait_for(lambda: not any(each.is_running() for each in processes))


async def asked(session: aiohttp.ClientSession, address: str, **fields) -> tuple[int, dict]:
    async with session.post(f"{address}/predict", json=fields) as response:
        return response.status, await response.json()


async def one(address: str, **fields) -> tuple[int, dict]:
    async with aiohttp.ClientSession() as session:
        return await asked(session, address, **fields)


@pytest.mark.slow
def test_answers_are_those_of_transformers_alone(model, address):
    expected = probabilities_of_transformers(model, TEXTS[:50])
    status, answer = asyncio.run(one(address, texts=TEXTS[:50], top=3))
    assert status == 200
    for row, labels in zip(expected, answer["predictions"], strict=True):
        assert [each["label"] for each in labels] == [LABELS[best] for best in np.argsort(-row)]
        np.testing.assert_allclose([each["score"] for each in labels], np.sort(row)[::-1], rtol=1e-4, atol=1e-5)
    (body,) = re.findall(r"curl \S+/predict --json '(.*)'", PAGE)
    status, answer = asyncio.run(one(address, **json.loads(body)))
    assert status == 200 and len(answer["predictions"][0]) == 2
    status, answer = asyncio.run(one(address, texts=["a"], pairs=["b"]))
    assert status == 200 and len(answer["predictions"][0]) == 1
    status, answer = asyncio.run(one(address, texts=["a"], top=4))
    assert status == 400 and answer == {"error": "top 4: must be a whole number from 1 to 3, the number of labels"}


@pytest.mark.slow
def test_it_listens_on_loopback_alone(address):
    port = int(address.rpartition(":")[2])
    listening = {each.laddr for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    assert {ip for ip, used in listening if used == port} == {"127.0.0.1"}


@pytest.mark.slow
def test_no_text_is_logged(address, session_folder):
    status, _ = asyncio.run(one(address, texts=["zebrafinch"]))
    refused, _ = asyncio.run(one(address, texts=["zebrafinch", 7]))
    assert (status, refused) == (200, 400)
    logs = [path for path in session_folder.glob("ray/session_*/logs/**/*") if path.is_file()]
    assert any("serve" in str(path) for path in logs)
    assert [path for path in logs if b"zebrafinch" in path.read_bytes()] == []


@pytest.mark.slow
def test_a_gigabyte_is_refused_early(address):
    host, port = address.removeprefix("http://").split(":")
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    sent, chunk = 0, b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    rest = chunk
    with socket.create_connection((host, int(port))) as link:
        link.sendall(head)
        link.setblocking(False)
        answer = b""
        while not answer and sent < 10**9:
            heard, room, _ = select.select([link], [link], [], 60)
            if heard:
                answer = link.recv(4096)
            elif room:
                count = link.send(rest)
                sent, rest = sent + count, rest[count:] or chunk
    assert b" 413 " in answer.partition(b"\r\n")[0] and sent < 10**8
    with socket.create_connection((host, int(port))) as link:
        link.sendall(head.replace(b"Transfer-Encoding: chunked", b"Content-Length: 1000000000"))
        assert b" 413 " in link.recv(4096)


def replicas() -> list[psutil.Process]:
    """The processes of this user that hold a served model."""
    there = psutil.process_iter(["cmdline", "status"])
    return [
        each
        for each in there
        if "ServeReplica:tlm:Replica" in "".join(each.info["cmdline"] or []) and each.info["status"] != "zombie"
    ]


@pytest.mark.slow
def test_a_killed_replica_loses_no_request_and_a_full_queue_says_so(address):
    killed = Counter()

    async def client(session: aiohttp.ClientSession, number: int) -> list[int]:
        statuses = []
        for turn in range(20):
            if (number, turn) == (0, 5):
                os.kill(replicas()[0].pid, signal.SIGKILL)
                killed["replica"] += 1
            status, answer = await asked(session, address, texts=TEXTS[:20])
            assert len(answer["predictions"]) == 20 if status == 200 else answer["error"].startswith("busy: ")
            statuses.append(status)
        return statuses

    async def load() -> list[list[int]]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await asyncio.gather(*(client(session, number) for number in range(8)))

    found = Counter(chain(*asyncio.run(load())))
    assert killed["replica"] == 1 and set(found) <= {200, 503} and found[200] > 80
    wait_for(lambda: len(replicas()) == 2)

    async def crowd() -> list[tuple[int, dict]]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await asyncio.gather(*(asked(session, address, texts=TEXTS[:200]) for _ in range(200)))

    statuses = Counter(status for status, _ in asyncio.run(crowd()))
    assert set(statuses) == {200, 503} and statuses[200] >= 68, "two replicas hold 32 each, and four wait"


WRONG = {
    "model 'model': must be a tuple": lambda: Service(model="model"),
    "model \\(\\): must be a tuple of one folder": lambda: Service(model=()),
    "cpus nan: must be 0 or more": lambda: Service(model=("model",), cpus=float("nan")),
    "max_megabytes inf: must be above 0": lambda: Limits(max_megabytes=float("inf")),
    "queue 0: must be 1 or more": lambda: Service(model=("model",), queue=0),
    "cpus -1: must be 0 or more": lambda: Service(model=("model",), cpus=-1),
    "max_texts 0: must be above 0": lambda: Limits(max_texts=0),
    "model 'nothing': transformers cannot open it": lambda: build(Service(model=("nothing",))),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_served_is_refused_before_anything_starts(message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


@pytest.fixture
def idle(monkeypatch) -> MagicMock:
    """Ray Serve on one node of two CPUs, which serves nothing."""
    served = MagicMock(**{"status.return_value.proxies": {}, "status.return_value.applications": {}})
    monkeypatch.setattr(service, "serve", served)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])
    return served


NO_ROOM = {
    r"replicas 1 with 1 GPU each: the cluster has 0 GPU, room for 0; lower --replicas, --cpus or --gpus": {"gpus": 1},
    r"replicas 4 with 1 CPU each: the cluster has 2 CPU, room for 2; .* add --autoscaling": {"replicas": 4},
}


@pytest.mark.parametrize("message", NO_ROOM)
def test_a_service_without_room_is_refused_before_its_model_is_opened(message, idle):
    with pytest.raises(ValueError, match=message):
        service.start(Service(model=("nothing",), **NO_ROOM[message]), port=free_port())
    assert not idle.run.called


def test_a_service_waits_for_the_nodes_that_an_autoscaling_cluster_adds(idle, model):
    service.start(Service(model=(model,), gpus=1), port=free_port(), autoscaling=True, shared_root=True)
    assert idle.run.called


def test_a_local_model_is_refused_where_replicas_may_run_on_nodes_that_lack_it(idle, model, monkeypatch):
    local = Service(model=(model,))
    with pytest.raises(ValueError, match=f"model '{model}' is local, but replicas may run on other .* --shared-root"):
        service.start(local, port=free_port(), autoscaling=True)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}] * 2)
    with pytest.raises(ValueError, match="is local, but"):
        service.start(local, port=free_port())
    assert not idle.run.called
    service.start(local, port=free_port(), shared_root=True)
    assert idle.run.called


def test_a_port_that_is_taken_is_refused_before_the_model_is_opened(idle):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port}: nothing can listen at 127.0.0.1:{port} .* another --port"):
            service.start(Service(model=("nothing",)), port=port)


def test_a_start_that_fails_leaves_nothing_behind_and_says_why_in_one_line(idle, model):
    def fail(*_, **__):
        replica = SimpleNamespace(message="failed 3 times\nTraceback\n\nOSError: out of memory\n")
        idle.status.return_value.applications = {"tlm": SimpleNamespace(deployments={"Replica": replica})}
        raise RuntimeError("Deploying application tlm failed: Failed to update the deployments ['Replica'].")

    idle.run.side_effect = fail
    idle.delete.side_effect = lambda name: idle.status.return_value.applications.clear()
    with pytest.raises(OSError, match=r"^serve: the service cannot start \(OSError: out of memory\); mend it"):
        service.start(Service(model=(model,)), port=free_port())
    assert idle.delete.called and idle.shutdown.called


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signals of this process are handled as before when the test is over; a closed terminal would end it."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_closed_terminal_ends_no_service_under_nohup():
    handle = runpy.run_path(str(REPOSITORY / "experiments" / "serve.py"))["handle"]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handle(print)
    assert [signal.getsignal(number) for number in STOPPING] == [print, print, signal.SIG_IGN]


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.usefixtures("handlers")
def test_a_signal_ends_a_start_that_waits(idle, model, monkeypatch, number):
    script = runpy.run_path(str(REPOSITORY / "experiments" / "serve.py"))
    main, options = script["main"], script["Serve"](service=Service(model=(model,)), port=free_port())
    monkeypatch.setitem(main.__globals__, "parse", lambda *_: options)
    monkeypatch.setattr(ray, "init", lambda **options: None)
    idle.run.side_effect = lambda *_, **__: (os.kill(os.getpid(), number), threading.Event().wait(20))
    with pytest.raises(KeyboardInterrupt):
        main()
    assert idle.shutdown.called


def test_the_page_adds_the_model_to_what_a_cluster_serves(model, tmp_path, monkeypatch):
    run = MagicMock()
    monkeypatch.setattr(ray.serve, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews-model").symlink_to(model)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(snippet, {})
    (application,), how = run.call_args
    assert isinstance(application, ray.serve.Application) and how == {"name": "reviews", "route_prefix": "/reviews"}


def test_the_door_keeps_no_node_of_gpus_from_going(model):
    door = build(Service(model=(model,), gpus=1))._bound_deployment
    assert door.name == "Door" and door.ray_actor_options["resources"] == {"node:__internal_head__": 0.001}


def test_a_replica_on_a_gpu_asks_for_no_cpu_unless_told():
    """GPU nodes of the cluster files offer none."""
    model = ("model",)
    assert [Service(model=model, **given).own_cpus for given in ({}, {"gpus": 1}, {"gpus": 1, "cpus": 2})] == [1, 0, 2]
