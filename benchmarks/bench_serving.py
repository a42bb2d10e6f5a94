"""Measure a service under load: texts per second and the slowest answers, beside TF-IDF behind the usual web server.

    python benchmarks/bench_serving.py --model reviews-model --texts train.parquet
    python benchmarks/bench_serving.py --model reviews-model --texts train.parquet --clients 64 --seconds 60 --turns 1

Each client sends one request after another over a connection of its own; `--per-request` texts are in each.
The rival is scikit-learn's TF-IDF and logistic regression in a FastAPI process, trained on the same file.
Services and clients share this machine, and services are measured in turns.
"""

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median

import aiohttp
import numpy as np
import psutil
from rich.table import Table

from tlm_ray import parse, plain_errors
from tlm_ray.console import console
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_rows import read_file

HERE = Path(__file__).parent
OURS, RIVAL = "tlm serve", "TF-IDF, FastAPI"
COLUMNS = ("service", "clients", "texts per second", "median ms", "p99 ms", "refused", "other errors")
PORTS = {OURS: 8011, RIVAL: 8012}


@dataclass(frozen=True, kw_only=True)
class Load:
    """Options of the measurement."""

    model: str
    """folder of a trained model"""
    texts: str
    """labelled file with the columns text and label"""
    clients: list[int] = field(default_factory=lambda: [1, 8, 64])
    """numbers of clients"""
    per_request: int = 1
    """texts per request"""
    seconds: float = 5
    """seconds per measurement"""
    turns: int = 5
    """measurements of each service, in turns"""
    replicas: int = 1
    """processes that hold the model"""


@dataclass(frozen=True)
class Measured:
    """One measurement: texts per second, seconds of each answer, answers by status."""

    rate: float
    seconds: np.ndarray
    statuses: Counter[int]


async def _client(url: str, bodies: Iterator[bytes], end: float, seconds: list[float], statuses: Counter[int]) -> None:
    async with aiohttp.ClientSession() as session:
        while time.perf_counter() < end:
            started = time.perf_counter()
            async with session.post(url, data=next(bodies), headers={"content-type": "application/json"}) as response:
                await response.read()
                statuses[response.status] += 1
                if response.status == 200:
                    seconds.append(time.perf_counter() - started)


async def _load(url: str, bodies: Iterator[bytes], clients: int, options: Load) -> Measured:
    seconds: list[float] = []
    statuses: Counter[int] = Counter()
    started = time.perf_counter()
    end = started + options.seconds
    await asyncio.gather(*(_client(url, bodies, end, seconds, statuses) for _ in range(clients)))
    rate = options.per_request * len(seconds) / (time.perf_counter() - started)
    return Measured(rate, np.array(seconds), statuses)


@contextmanager
def _running(name: str, command: list[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Start a service, wait until it answers, and end it."""
    address = f"http://127.0.0.1:{PORTS[name]}"
    with subprocess.Popen([sys.executable, *command, "--port", str(PORTS[name])]) as process:
        try:
            while not _healthy(address):
                if process.poll() is not None:
                    raise ValueError(f"{name}: ended before it answered; its error is above")
                time.sleep(0.2)
            yield f"{address}/predict", psutil.Process(process.pid)
        finally:
            process.terminate()


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _memory(process: psutil.Process) -> float:
    """Return the megabytes of a service's processes."""
    return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / 1e6


def main() -> None:
    options = parse(Load, __doc__)
    file = read_file(options.texts)
    texts = file[Columns().found(file, options.texts).text].to_pylist()
    if len(texts) < options.per_request:
        raise ValueError(f"--per-request {options.per_request}: --texts has {len(texts)}; give fewer per request")
    chunks = [texts[at : at + options.per_request] for at in range(0, len(texts), options.per_request)]
    bodies = cycle(json.dumps({"texts": chunk}).encode() for chunk in chunks[: len(texts) // options.per_request])
    script = str(HERE.parent / "experiments" / "serve.py")
    ours = [script, "--model", options.model, "--replicas", str(options.replicas)]
    rival = [str(HERE / "serving_rival.py"), "--texts", options.texts]
    with _running(OURS, ours) as first, _running(RIVAL, rival) as second:
        services = {OURS: first, RIVAL: second}
        for url, _ in services.values():  # both are warm before any turn
            asyncio.run(_load(url, bodies, 8, options))
        before = {name: _memory(process) for name, (_, process) in services.items()}
        table = Table(*COLUMNS, box=None)
        for clients in options.clients:
            found: dict[str, list[Measured]] = {name: [] for name in services}
            for _ in range(options.turns):
                for name, (url, _process) in services.items():
                    found[name].append(asyncio.run(_load(url, bodies, clients, options)))
            for name, some in found.items():
                table.add_row(name, str(clients), *_cells(some))
        console.print(table)
        for name, (_, process) in services.items():
            print(f"{name}: {before[name]:,.0f} MB before, {_memory(process):,.0f} MB after")


def _cells(some: list[Measured]) -> list[str]:
    rates = sorted(one.rate for one in some)
    seconds = np.concatenate([one.seconds for one in some])
    statuses = sum((one.statuses for one in some), Counter())
    p50, p99 = (f"{1e3 * share:,.1f}" for share in np.quantile(seconds, [0.5, 0.99])) if len(seconds) else ("–", "–")
    others = sum(statuses.values()) - statuses[200] - statuses[503]
    return [f"{median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})", p50, p99, str(statuses[503]), str(others)]


if __name__ == "__main__":
    with plain_errors():
        main()
