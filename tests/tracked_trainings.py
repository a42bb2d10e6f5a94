"""Trainings as stages with records, for tests of tracking, and a server that answers in one way."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tlm_ray import storage
from tlm_ray.runs.stages.stage import Stage

HISTORY = [{"step": step, "learning_rate": 0.1 / step, "task": 1.0 / step} for step in range(1, 251)]
FACTS = {
    "task": {"train_rows": 60, "dev_rows": 24, "test_rows": 25},
    "passages": {"documents": 3, "passages": 5},
    "stage_one": {"steps": 250, "seconds": 2.0, "history": HISTORY},
    "stage_two": {"steps": 250, "seconds": 3.0, "history": HISTORY, "dev": 70.0},
    "metrics": {"metric": "accuracy", "dev": 70.0, "test": 60.0},
}


def stage(name: str = "stage_one", inputs: dict | None = None, **parameters: object) -> Stage:
    lane = "train" if name in ("stage_one", "stage_two", "metrics") else "data"
    own = {key.rstrip("_"): value for key, value in parameters.items()}
    return Stage(name=name, version=1, parameters=own, make=lambda *_: {}, lane=lane, inputs=inputs or {})


def trained(seed: int, shared: int = 0) -> Stage:
    """The last stage of a whole training; shared: the seed of its stage one."""
    task = stage("task", name_="topics", digests=["a1", "b2", "c3"])
    passages = stage("passages", corpus="d4")
    one = stage(inputs={"task": task, "passages": passages}, seed=shared or seed)
    two = stage("stage_two", inputs={"stage_one": one}, seed=seed)
    return stage("metrics", inputs={"stage_two": two})


def recorded(last: Stage, root: str, *names: str) -> None:
    """Write records of a training's stages, of some or all of them."""
    for each in last.upstream():
        if not names or each.name in names:
            record = {"recipe": each.recipe, "facts": FACTS[each.name]}
            storage.write_record(storage.join(each.folder(root), "record.json"), record)


class Server(ThreadingHTTPServer):
    """Answers every request in one way; a status of 0 closes the connection after two seconds without an answer."""

    status, body, location = 200, b"", ""
    drips = False  # a byte each 0.3 s, so that no socket waits for long

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.stopped = threading.Event()


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.server.status:
            time.sleep(2)
            return
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        for byte in self.server.body if self.server.drips else b"":
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.stopped.wait(0.3):
                return
        self.wfile.write(b"" if self.server.drips else self.server.body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass
