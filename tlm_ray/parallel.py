"""Run a function, or a worker class created once per process, on a list of items as Ray tasks.

Idle worker processes are kept and reused by the next stage: starting one, with its imports, takes two seconds. Pools
of actors, used until commit a20def7, ended their processes after each stage.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ray

from tlm_ray import events
from tlm_ray.console import console
from tlm_ray.held import held
from tlm_ray.process import tune_torch
from tlm_ray.progress import Progress

RETRIES = 3  # per item whose worker process died
# The name keeps these processes apart from training processes, where `keep_memory` would cost memory
OWN = {"env_vars": {"TLM_RAY_PROCESS": "data"}}
GPU_ITEMS = 8  # per GPU task; its worker exits afterwards to free GPU memory, and a restart takes 10 s
LOOK_EVERY_S = 60.0  # between checks for the node that a task waits for
SHOWN = 200  # characters of an item in a message
DIED = (
    "its worker process died again and again, most often for want of memory; use fewer workers at a time or machines "
    "with more memory, then run the same again"
)


def each(
    items: Sequence[dict[str, Any]],
    worker: Callable[..., Callable[[dict[str, Any]], Any]],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
    size: str = "",
    gpus: float = 0,
) -> Iterator[Any]:
    """Yield `worker(*arguments)(item)` for each item, in the order in which they finish.

    Each process creates its worker once. A CPU task has one item, a GPU task (`gpus`) up to GPU_ITEMS. At most
    `workers` tasks run in parallel. Large arguments travel once per node when they are `ray.put` references. Items of a
    lost process or node are retried. A line of progress is printed every few seconds; size: the entry of the items
    whose rate it shows. A worker's own ValueError or OSError is raised here, from its constructor or from an item.
    OSError names an item whose process or node was lost on every retry.
    """
    yield from (row for _, row in _Work(items, worker, arguments, title, size, gpus).results(max(1, workers)))


def ray_tasks(
    items: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
) -> list[Any]:
    """Return `function(item, *arguments)` for all items, in their order; otherwise like `each`."""
    work = _Work(items, _Calls, (function, *arguments), title)
    results = dict(work.results(max(1, workers)))
    return [results[place] for place in range(len(items))]


class _Calls:
    """A worker that calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.function, self.arguments = function, arguments

    def __call__(self, item: dict[str, Any]) -> Any:
        return self.function(item, *self.arguments)


class _Work:
    """A list of items in work."""

    def __init__(
        self,
        items: Sequence[dict[str, Any]],
        worker: Callable[..., Any],
        arguments: Sequence[Any],
        title: str,
        size: str = "",
        gpus: float = 0,
    ):
        self.items, self.title, self.gpus = items, title, gpus
        # a GPU node may offer no CPU, so that only GPU tasks are placed there
        self.needs = {"GPU": gpus} if gpus else {"CPU": 1.0}
        where: dict[str, Any] = {"num_cpus": self.needs.get("CPU", 0), "num_gpus": gpus}
        task = (_on_gpu if gpus else _on_cpu).options(name=title, runtime_env=OWN, **where)
        self.begin = partial(task.remote, [ray.put((worker, tuple(arguments)))])  # in a list: fetched once per process
        self.lost = Counter[int]()  # by the places of items, like the others
        self.waiting = deque[Sequence[int]]()
        self.working: dict[Any, Sequence[int]] = {}
        self.progress = Progress(title, items, size)

    def results(self, workers: int) -> Iterator[tuple[int, Any]]:
        """Yield the place and the result of each item as they finish."""
        places: Sequence[int] = range(len(self.items))
        together = self._together(workers)
        self.waiting.extend(places[first : first + together] for first in range(0, len(places), together))
        try:
            self._fill(workers)
            while self.working:
                rows = self._finished()
                self._fill(workers)
                yield from rows
        finally:
            self._end()

    def _together(self, workers: int) -> int:
        """Return the number of items per task."""
        if not self.gpus:
            return 1
        slots = min(workers, int(ray.cluster_resources().get("GPU", 0) / self.gpus) or workers)
        return min(GPU_ITEMS, max(1, -(-len(self.items) // slots)))

    def _fill(self, workers: int) -> None:
        """Start tasks until `workers` of them run."""
        while self.waiting and len(self.working) < workers:
            places = self.waiting.popleft()
            self.working[self.begin([self.items[place] for place in places])] = places
        self.progress.queue(sum(map(len, self.waiting)))

    def _finished(self) -> list[tuple[int, Any]]:
        """Wait for a task; return its results, or put its items back in the queue."""
        reference = _wait(list(self.working), self.title, self.needs)
        places = self.working.pop(reference)
        try:
            rows = _result(reference, _part(self.title, places[0], self.items))
        except ChildProcessError:
            if self.lost[places[0]] == RETRIES:
                raise
            self._put_back(places)
            return []
        for place in places:
            self.progress.done(place)
        return list(zip(places, rows, strict=True))

    def _put_back(self, places: Sequence[int]) -> None:
        """Retry items before all others; several are split in halves, as the one that failed is unknown."""
        self.progress.lost(places[0])
        if len(places) == 1:
            self.lost[places[0]] += 1
            self.waiting.appendleft(places)
        else:
            half = len(places) // 2
            self.waiting.extendleft((places[half:], places[:half]))

    def _end(self) -> None:
        """Cancel running tasks, after an error or when the caller stops early."""
        try:
            if ray.is_initialized():  # otherwise `ray.cancel` would start Ray again
                for reference in self.working:
                    ray.cancel(reference, force=True)
        finally:
            self.progress.end()


def _work(made_of: list[ray.ObjectRef], items: list[dict[str, Any]]) -> list[Any]:
    """Process some items with the cached worker of this process, or a new one."""
    try:
        worker = held.get(made_of[0])
        return [worker(item) for item in items]
    finally:
        held.forget_later()


# Retries are counted here; Ray's own would be silent
_on_cpu = ray.remote(max_retries=0)(_work)
_on_gpu = ray.remote(max_retries=0, max_calls=1)(_work)


def _part(title: str, place: int, items: Sequence[dict[str, Any]]) -> str:
    """Name an item in a message."""
    return f"{title}, part {place + 1} of {len(items)} ({str(items[place])[:SHOWN]})"


def on_worker(
    function: Callable[..., Any],
    *arguments: Any,
    resources: dict[str, float] | None = None,
    retries: int = RETRIES,
    again: Sequence[type[Exception]] = (),
    **options: Any,
) -> Any:
    """Run a function once, on a node of the cluster that has the resources (default one CPU), and return its result.

    retries: number of retries after its worker process or node dies; again: exceptions that are retried as well. The
    function's own ValueError or OSError is raised here; OSError if its process or node dies on every retry. While no
    node has the resources it waits for one, and prints so.
    """
    needs = dict(resources or {"CPU": 1.0})
    named: dict[str, Any] = {
        "num_cpus": needs.pop("CPU", 0.0),
        "num_gpus": needs.pop("GPU", 0.0),
        "memory": needs.pop("memory", None),
    }
    # named here, not in options: otherwise Ray keeps a process that held a GPU, and with it the GPU's memory
    named["retry_exceptions"] = list(again) or False  # Ray's annotation allows only bool
    remote = ray.remote(resources=needs, max_retries=retries, **named)(_tuned)
    reference = remote.options(name=function.__name__).remote(function, *arguments, **options)
    _wait([reference], function.__name__, resources or {"CPU": 1.0})
    return _result(reference, function.__name__)


def _wait(references: list[Any], what: str, needs: Mapping[str, float]) -> Any:
    """Wait for one of some tasks and return it; print once if no live node has the resources."""
    told = False
    while not (ready := ray.wait(references, timeout=LOOK_EVERY_S)[0]):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not told and not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
            console.print(f"[yellow]waits[/]  {what}: no node of the cluster has {asked}; it starts when one joins")
            events.warn("waits for a node", work=what, resources=asked)
            told = True
    return ready[0]


def _tuned(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function in a reused process."""
    tune_torch()
    return function(*arguments, **options)


def _result(reference: Any, what: str) -> Any:
    """Wait for a task's result; re-raise the worker's own ValueError or OSError instead of RayTaskError."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError | OSError):
            raise error.cause from error
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise ChildProcessError(f"{what}: {DIED}") from error
    except (
        ray.exceptions.NodeDiedError,
        ray.exceptions.LocalRayletDiedError,
        ray.exceptions.ObjectLostError,  # a large result was still on that node
        ray.exceptions.RuntimeEnvSetupError,  # the node's agent was lost first
    ) as error:
        raise ChildProcessError(
            f"{what}: its node was lost again and again; bring nodes back that stay, then run the same again"
        ) from error
