"""Run a function on some items, or once, as Ray tasks: for steps that a dataset would cost more than their work."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import ray

from tlm_ray.parallel.failures import RETRIES, named, raised, tells_of_missing_nodes
from tlm_ray.parallel.held import held
from tlm_ray.parallel.items import OWN
from tlm_ray.parallel.local import is_local, made
from tlm_ray.parallel.progress import Progress, attempts
from tlm_ray.process import tune_torch


def ray_tasks(
    items: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
) -> list[Any]:
    """Return `function(item, *arguments)` for all items, in their order; at most `workers` run in parallel.

    The function's own ValueError or OSError is raised here. Items of a lost process or node are retried; OSError names
    one that was lost on every retry.
    """
    if is_local():
        return list(map(made(_Call, (function, *arguments)), items))
    progress = Progress(title, items, "", workers)
    shared: Any = [ray.put((_Call, (function, *arguments), []))]  # in a list: fetched once per process
    task = _call.options(name=title, **_outside())
    results, waiting, running = dict[int, Any](), deque(range(len(items))), dict[Any, int]()
    try:
        with tells_of_missing_nodes(title, {"CPU": 1.0}):
            while waiting or running:
                while waiting and len(running) < max(1, workers):
                    place = waiting.popleft()
                    running[task.remote(shared, items[place], title)] = place
                ready = ray.wait(list(running))[0][0]
                place = running.pop(ready)
                results[place], attempt = _result(ready, named(title, [place], items))
                for _ in range(attempt):
                    progress.lost(place)
                progress.done(place)
    finally:
        for reference in running if ray.is_initialized() else ():  # otherwise `ray.cancel` would start Ray again
            ray.cancel(reference, force=True)
        progress.end()
    return [results[place] for place in range(len(items))]


class _Call:
    """A worker that calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.function, self.arguments = function, arguments

    def __call__(self, item: dict[str, Any]) -> Any:
        return self.function(item, *self.arguments)


@ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env=OWN)
def _call(shared: list[ray.ObjectRef], item: dict[str, Any], title: str) -> tuple[Any, int]:
    """Return the function's result, and how often the task was lost before."""
    try:
        lost = attempts(title)
        return held.get(shared[0])[0](item), lost
    finally:
        held.forget_later()


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
    if is_local():
        return function(*arguments, **options)
    asked = dict(resources or {"CPU": 1.0})
    needs = dict(asked)
    named_options: dict[str, Any] = {
        "num_cpus": needs.pop("CPU", 0.0),
        "num_gpus": needs.pop("GPU", 0.0),
        "memory": needs.pop("memory", None),
    }
    # named here, not in options: otherwise Ray keeps a process that held a GPU, and with it the GPU's memory
    named_options["retry_exceptions"] = list(again) or False  # Ray's annotation allows only bool
    remote = ray.remote(resources=needs, max_retries=retries, **named_options, **_outside())(_tuned)
    with tells_of_missing_nodes(function.__name__, asked):
        reference = remote.options(name=function.__name__).remote(function, *arguments, **options)
        return _result(reference, function.__name__)


def _outside() -> dict[str, Any]:
    """Return options by which a task of a trial runs beside the trial's reserved resources, not within them."""
    return {"scheduling_strategy": "SPREAD"} if ray.util.get_current_placement_group() else {}


def _tuned(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function in a reused process."""
    tune_torch()
    return function(*arguments, **options)


def _result(reference: Any, what: str) -> Any:
    """Wait for a task's result; re-raise the worker's own ValueError or OSError instead of RayTaskError."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        raise raised(error, what) from error
