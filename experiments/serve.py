"""Serve a trained model over HTTP by Ray Serve, until it is interrupted.

    python experiments/serve.py --model reviews-model
    python experiments/serve.py --model reviews-model --replicas 2 --queue 500 --port 8080
    curl http://127.0.0.1:8000/predict --json '{"texts": ["A fine book."], "top": 2}'

POST /predict takes JSON: `texts`, a list; `pairs`, the second text of each, for pairs of texts; `top`, the number of
labels per answer (1). It answers {"predictions": [[{"label": ..., "score": ...}, ...], ...]}, one list per text.
GET /health says what is served. Only this machine reaches the service, unless --host says otherwise; it asks nobody
for a password, so put a proxy that does before it.
"""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import ray

from tlm_ray import parse, plain_errors, ray_options, storage
from tlm_ray.serving.settings import Service

NEEDED = "serve: needs Ray Serve; pip install 'tlm_ray[serve]'"


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Options of a service."""

    service: Service
    host: str = "127.0.0.1"
    """address to listen at; 0.0.0.0 is every network of this machine"""
    port: int = 8000
    """port to listen at"""
    autoscaling: bool = False
    """the cluster adds nodes on demand: wait for missing resources instead of stopping with an error"""
    shared_root: bool = False
    """the local --model is in a folder shared by all nodes (such as NFS)"""

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ValueError(f"--port {self.port}: must be from 1 to 65535")


def handle(handler: Callable[..., None]) -> None:
    """Call a function for Ctrl-C and for what ends a process otherwise, such as the end of an ssh connection."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` leaves it
            signal.signal(number, handler)


def interrupt(*_: object) -> None:
    """End what waits, such as a service that has no room yet."""
    raise KeyboardInterrupt


def main() -> None:
    options = parse(Serve, __doc__)
    try:
        from ray import serve  # noqa: F401
    except ImportError as error:
        raise ValueError(NEEDED) from error
    from tlm_ray.serving.service import start, stop  # transformers: 3 s, which --help need not take

    models = tuple(storage.absolute_if_there(model) for model in options.service.model)
    ray.init(**ray_options())
    handle(interrupt)  # Ray's own handler of SIGTERM aborts this process
    service = replace(options.service, model=models)
    address = start(
        service,
        host=options.host,
        port=options.port,
        autoscaling=options.autoscaling,
        shared_root=options.shared_root,
    )
    ended = threading.Event()
    handle(lambda *_: ended.set())
    print(f"{address}/predict: ready; end it with Ctrl-C", flush=True)
    ended.wait()
    stop()


if __name__ == "__main__":
    with plain_errors():
        main()
