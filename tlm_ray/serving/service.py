"""The service: a door that speaks HTTP and checks requests, and replicas of the model behind it, all by Ray Serve.

The door keeps what it accepted until a replica has answered. A replica that dies is replaced by Ray Serve, and its
requests go to another one. The door itself opens no model, so it has little to die of.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import ray
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from tlm_ray import metrics, storage
from tlm_ray.compute import places
from tlm_ray.parallel.failures import tells_of_missing_nodes
from tlm_ray.serving.bodies import Asked, Refused, read_body, read_request
from tlm_ray.serving.settings import Service

APPLICATION = "tlm"
TRIES = 5  # replicas that may die under one request; a text that kills every replica must not be tried for ever
PAUSE_S = 0.1  # doubled for each try; Ray Serve knows a dead replica after a moment
ON_HEAD = {"node:__internal_head__": 0.001}
UNLIMITED = 1_000_000
LOG = logging.getLogger("ray.serve")
RETRY_S = "1"
TIMEOUT_S, BODY_S = 60.0, 10.0
http = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # its pages load scripts from elsewhere


@serve.deployment()
class Replica:
    """One process with the model: it predicts what came while it was busy as one batch."""

    def __init__(self, service: Service):
        from tlm_ray.training.scoring.predictor import Models  # here, because the door's process needs no torch

        self.models = Models(service.model, "cuda" if service.gpus else "cpu", service.precision)
        batches: Any = self.together
        batches.set_max_batch_size(service.limits.max_texts)

    async def predict(self, asked: Asked) -> list[list[float]]:
        """Return the probabilities of each text, or its number in a regression."""
        return await self.together(asked)

    @serve.batch(batch_wait_timeout_s=0, batch_size_fn=lambda asked: sum(len(one.texts) for one in asked))
    async def together(self, asked: list[Asked]) -> list[list[list[float]]]:
        """Predict some requests, in a thread: Ray Serve asks this process for its health meanwhile."""
        return await asyncio.to_thread(self._predict, asked)

    def _predict(self, asked: list[Asked]) -> list[list[list[float]]]:
        found: dict[int, list[list[float]]] = {}
        for with_pairs in (False, True):
            some = [number for number, one in enumerate(asked) if bool(one.pairs) is with_pairs]
            if some:
                columns = zip(*(asked[number].columns for number in some), strict=True)
                rows = iter(self.models.said([list(chain(*column)) for column in columns]).tolist())
                found |= {number: [next(rows) for _ in asked[number].texts] for number in some}
        metrics.SERVED_TEXTS.add(sum(len(one.texts) for one in asked))
        return [found[number] for number in range(len(asked))]


@serve.deployment()
@serve.ingress(http)
class Door:
    """What clients speak to: POST /predict, and GET /health."""

    def __init__(self, replicas: DeploymentHandle, labels: Sequence[str], service: Service):
        self.replicas, self.labels, self.limits, self.most = replicas, list(labels), service.limits, service.most
        self.held = 0

    @http.post("/predict")
    async def predict(self, request: Request) -> JSONResponse:
        """Answer a request: the best labels of each text with their scores, or one line that says what is wrong."""
        started, status = time.perf_counter(), 500
        answer: dict[str, Any]
        try:
            status, answer = 200, {"predictions": await self._answers(request)}
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        finally:  # an error of the model is counted too
            metrics.SERVED_REQUESTS.add(status=str(status))
            metrics.SERVED_SECONDS.observe(time.perf_counter() - started)
        return JSONResponse(answer, status, headers={"retry-after": RETRY_S} if status == 503 else None)

    @http.get("/health")
    async def health(self) -> dict[str, Any]:
        """Say that the service accepts requests, and what it predicts."""
        return {
            "status": "ok",
            "labels": self.labels,
            "max_texts": self.limits.max_texts,
            "max_bytes": self.limits.max_bytes,
        }

    async def _answers(self, request: Request) -> list[list[dict[str, Any]]]:
        self._refuse_if_full()
        asked = await self._read(request)
        self._refuse_if_full()
        self.held += 1
        try:
            return [self._best(row, asked.top) for row in await self._predicted(asked)]
        finally:
            self.held -= 1

    def _refuse_if_full(self) -> None:
        if self.held >= self.most:
            raise Refused(503, f"busy: {self.held} requests are held; try again in a second")

    async def _read(self, request: Request) -> Asked:
        """Read a request; one whose body comes too slowly holds no place of the others, and is refused."""
        try:
            async with asyncio.timeout(BODY_S):
                body = await read_body(request.stream(), request.headers.get("content-length"), self.limits)
        except TimeoutError as error:
            raise Refused(408, f"body: did not arrive within {BODY_S:g} s") from error
        return await asyncio.to_thread(read_request, body, self.limits, len(self.labels))

    async def _predicted(self, asked: Asked) -> list[list[float]]:
        for tried in range(TRIES):
            try:
                return await self.replicas.predict.remote(asked)
            except (
                RayActorError,
                DeploymentUnavailableError,
            ) as error:  # it died with the request: another one answers
                LOG.warning("a request is tried again: %s", error)
                await asyncio.sleep(PAUSE_S * 2**tried)
        raise Refused(500, f"{TRIES} replicas died with this request; see their logs")

    def _best(self, row: list[float], top: int) -> list[dict[str, Any]]:
        order = sorted(range(len(row)), key=lambda number: -row[number])[:top]
        return [{"label": self.labels[number], "score": row[number]} for number in order]


def build(service: Service) -> serve.Application:
    """Return the service as an application of Ray Serve: `serve.run(build(...))` adds it to what a cluster serves.

    ValueError for a model that cannot be served.
    """
    from tlm_ray.training.scoring.predictor import check_models, names_of

    check_models(service.model, service.precision)
    replicas = Replica.options(  # type: ignore[attr-defined]
        num_replicas=service.replicas,
        ray_actor_options={"num_cpus": service.own_cpus, "num_gpus": service.gpus},
        max_ongoing_requests=service.most,  # at a lower limit Serve asks again and again: 25 texts/s for 64 clients
    ).bind(service)
    door = Door.options(  # type: ignore[attr-defined]
        ray_actor_options={"num_cpus": 0, "resources": ON_HEAD},  # a node of GPUs that held it would never be idle
        max_ongoing_requests=UNLIMITED,  # it counts them itself
    )
    return door.bind(replicas, names_of(service.model[0]), service)


def start(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    autoscaling: bool = False,
    shared_root: bool = False,
) -> str:
    """Serve a model until `stop` or the end of this process, and return its address; Ray must be connected.

    host: the address to listen at; the default can be reached from this machine alone. autoscaling: wait for nodes
    that replicas lack. shared_root: local paths are the same on every node. ValueError for a model that cannot be
    served, a cluster that serves already or has no room, or an address that is taken. ChildProcessError for replicas
    that cannot start. An error or an interrupt ends what has begun.
    """
    LOG.setLevel(logging.ERROR)  # of this process; the service's own write to the files of Ray's session
    if serve.status().proxies:  # Ray Serve would keep its own address without an error
        raise ValueError(
            "serve: Ray Serve runs on this cluster already, at an address of its own; end it with `serve shutdown`, or "
            "add the model to it by serve.run(tlm_ray.serving.build(...), name=..., route_prefix=...)"
        )
    needs, nodes = _needs(service), [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) == 1:  # else the service may listen on another one
        _check_address(host, port)
    if not shared_root and (len(nodes) > 1 or autoscaling):
        _check_models(service.model)
    if not autoscaling:
        _check_room(service, needs, nodes)
    application = build(service)
    try:
        with tells_of_missing_nodes("serve", needs):
            _deploy(application, host, port)
    except BaseException:  # Ray Serve and its GPUs would outlive this process on a standing cluster
        stop()
        raise
    return f"http://{host}:{port}"


def _deploy(application: serve.Application, host: str, port: int) -> None:
    """Start Ray Serve and the service, and wait until it accepts requests."""
    quiet = {"enable_access_log": False}
    http_options = {"host": host, "port": port, "request_timeout_s": TIMEOUT_S}
    serve.start(proxy_location="HeadOnly", http_options=http_options, logging_config=quiet)
    try:
        serve.run(application, name=APPLICATION, logging_config=quiet)
    except RuntimeError as error:
        raise ChildProcessError(f"serve: the service cannot start ({_reason(error)}); mend it, start again") from error


def _reason(error: RuntimeError) -> str:
    """Return the last line of a replica's traceback, which Ray Serve's own error leaves out."""
    application = serve.status().applications.get(APPLICATION)
    told = [one.message for one in application.deployments.values() if one.message] if application else []
    return next(iter(told), str(error)).strip().rpartition("\n")[2].strip()


def _needs(service: Service) -> dict[str, float]:
    """Return the resources of a replica."""
    asked = {"CPU": service.own_cpus, "GPU": service.gpus}
    return {name: amount for name, amount in asked.items() if amount}


def _check_address(host: str, port: int) -> None:
    """Raise ValueError if this machine cannot listen at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET  # as Ray Serve chooses it
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ValueError(
            f"port {port}: nothing can listen at {host}:{port} ({error}); give another --port, or another --host"
        ) from error


def _check_models(models: Sequence[str]) -> None:
    """Raise ValueError for a model that only this node has; replicas on others would fail again and again."""
    for model in models:
        if storage.is_local(model) and storage.exists(model):
            raise ValueError(
                f"model {model!r} is local, but replicas may run on other nodes, which do not share it; give a shared "
                "location (s3://..., gs://...), or add --shared-root if local paths are the same on every node (NFS)"
            )


def _check_room(service: Service, needs: Mapping[str, float], nodes: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError unless each replica fits on a node, and all on the cluster."""
    room = places(needs, nodes) if needs else service.replicas
    if room < service.replicas:
        asked = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
        has = ", ".join(f"{sum(node['Resources'].get(name, 0.0) for node in nodes):g} {name}" for name in needs)
        raise ValueError(
            f"replicas {service.replicas} with {asked} each: the cluster has {has}, room for {room}; lower --replicas, "
            "--cpus or --gpus, or add --autoscaling if the cluster adds nodes on demand"
        )


def stop() -> None:
    """End the service, and Ray Serve if nobody else uses it by now."""
    if APPLICATION in serve.status().applications:  # not yet if its start was interrupted
        serve.delete(APPLICATION)
    if not serve.status().applications:
        serve.shutdown()
