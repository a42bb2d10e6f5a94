"""An object store of moto's behind a door that counts requests, refuses some of them, or is shut for a while."""

import http.client
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import numpy as np

BUSY = (503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}  # headers between two neighbours


class Door:
    """What stands between clients and the store.

    refused: the share of requests that are answered with 503, drawn by a seed. requests: those that were passed on or
    refused, by method. While it is shut, connections are closed without an answer.
    """

    def __init__(self, port: int, *, refused: float = 0.0):
        self.port, self.refused, self.shut_until = port, refused, 0.0
        self.requests, self.turned_away = Counter[str](), 0
        self.draws, self.lock = np.random.default_rng(0), threading.Lock()

    def shut(self, seconds: float) -> None:
        """Answer nobody for some seconds."""
        self.shut_until = time.monotonic() + seconds

    def refuses(self, method: str) -> bool:
        """Count a request and say whether it is one to refuse."""
        with self.lock:
            self.requests[method] += 1
            refused = bool(self.draws.random() < self.refused)
            self.turned_away += refused
        return refused


def _handler(door: Door) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            """Pass one request on."""
            if time.monotonic() < door.shut_until:
                self.close_connection = True
            else:
                super().handle_one_request()

        def _pass_on(self) -> None:
            body = self._body()
            refused = door.refuses(self.command)
            status, headers, data = (BUSY[0], [], BUSY[1]) if refused else self._answer(body)
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in HOP:
                    self.send_header(name, value)
            of_whole = next((value for name, value in headers if name.lower() == "content-length"), "0")
            self.send_header("Content-Length", of_whole if self.command == "HEAD" else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found.append(b"%x\r\n" % size + self.rfile.read(size) + self.rfile.readline())
            end = b"0\r\n"
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                end += line
            return b"".join(found) + end + b"\r\n"

        def _answer(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            found = answer.status, answer.getheaders(), answer.read()
            connection.close()
            return found

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep quiet."""

    return Handler


@contextmanager
def store() -> Iterator[int]:
    """Run a store of moto's on loopback; gives its port."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@contextmanager
def door(port: int, *, refused: float = 0.0) -> Iterator[tuple[Door, str]]:
    """Stand before a store; gives the door, and the query string that leads S3 locations through it."""
    found = Door(port, refused=refused)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found, query_of(server.server_address[1])
    server.shutdown()
    server.server_close()


class _Refusing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.path.partition("?")[0]
        is_folder = name.endswith("/") or name.count("/") == 1  # or the bucket
        self.send_response(200 if is_folder else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _refuse

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""


@contextmanager
def refusing_store() -> Iterator[str]:
    """Run a store that has folders, and neither gives nor takes a file; gives the query string of its locations."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield query_of(server.server_address[1]).removesuffix("&allow_bucket_creation=true")
    server.shutdown()
    server.server_close()


def query_of(port: int) -> str:
    """Return the query string that leads S3 locations to a store of this machine."""
    endpoint = quote(f"http://127.0.0.1:{port}", safe="")
    return f"?endpoint_override={endpoint}&scheme=http&region=us-east-1&allow_bucket_creation=true"
