"""Work spread over the cluster's CPUs: a class applied to a list of items by a pool of Ray Data actors."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray

from tlm_ray.console import console
from tlm_ray.process import keep_memory, tune_torch

REPORT_EVERY_S = 5.0
FAILED = "failed"  # a column of every result
RETRIES = 3  # of a task whose worker process died
LOOK_EVERY_S = 60.0  # for the node that a task waits for
SHOWN = 200  # characters of an item in a message
DIED = (
    "its worker process died again and again, most often for want of memory; use fewer workers at a time or machines "
    "with more memory, then run the same again"
)


def each(
    items: Sequence[dict[str, Any]],
    worker: type,
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
    size: str = "",
    gpus: float = 0,
) -> Iterator[dict[str, Any]]:
    """Yield `worker(*arguments)(item)` for each item, in the order in which they finish.

    Large arguments travel once per node when they are `ray.put` references. A lost actor or node repeats only the items
    that it held. A line of progress is printed every few seconds; size: the entry of the items whose rate it tells.
    gpus: what each actor needs instead of a CPU. ValueError carries the message of a worker's own ValueError or
    OSError, be it of its constructor or of an item, and names an item whose worker process dies again and again.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # each() prints its own, with the title that a reader knows
    context.execution_no_progress_timeout_s = -1  # a part of a corpus may take longer than its half hour
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    begun = ray.remote(num_cpus=0)(_Begun).remote()
    rows = (
        ray.data.from_items([{"item": i} for i in range(len(items))], override_num_blocks=len(items))
        .map_batches(
            _Each,
            batch_size=1,
            fn_constructor_args=[worker, ray.put(list(items)), begun, title, *arguments],
            compute=ray.data.ActorPoolStrategy(size=max(1, min(workers, len(items)))),
            num_cpus=0 if gpus else 1,  # a node of GPUs may offer no CPU, so that only what needs a GPU comes there
            num_gpus=gpus or None,
        )
        .iter_rows()
    )
    progress = _Progress(title, items, size)
    for row in rows:
        if row.pop(FAILED):
            raise ValueError(row["message"])
        progress.done(row.pop("item"))
        yield row


def ray_tasks(
    items: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
) -> list[Any]:
    """Return `function(item, *arguments)` of all items, in their order, run by plain Ray tasks.

    For work that needs nothing prepared: a pool of actors takes three seconds to start, tasks take none. A task's own
    ValueError or OSError is raised here; OSError names the item whose worker process dies again and again.
    """
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(function)
    progress = _Progress(title, items, "")
    waiting = list(range(len(items)))[::-1]
    running: dict[Any, int] = {}
    results: dict[int, Any] = {}
    while waiting or running:
        while waiting and len(running) < max(1, workers):
            place = waiting.pop()
            running[remote.remote(items[place], *arguments)] = place
        for reference in ray.wait(list(running))[0]:
            place = running.pop(reference)
            results[place] = _result(reference, _part(title, place, items))
            progress.done(place)
    return [results[place] for place in range(len(items))]


def _part(title: str, place: int, items: Sequence[dict[str, Any]]) -> str:
    """Name an item in a message."""
    return f"{title}, part {place + 1} of {len(items)} ({str(items[place])[:SHOWN]})"


class _Progress:
    """Prints a line every few seconds while there is more to do."""

    def __init__(self, title: str, items: Sequence[dict[str, Any]], size: str):
        self.title, self.size = title, size
        self.sizes = [item[size] if size else 1 for item in items]
        self.parts = self.work = 0
        self.started = self.reported = time.monotonic()

    def done(self, place: int) -> None:
        """Count the item at a place as done."""
        self.parts, self.work = self.parts + 1, self.work + self.sizes[place]
        now = time.monotonic()
        if now - self.reported > REPORT_EVERY_S and self.parts < len(self.sizes):
            rate = self.work / (now - self.started)
            pace = f"{rate:,.0f} {self.size}/s, " if self.size else ""
            left = (sum(self.sizes) - self.work) / rate
            parts = f"{self.parts} of {len(self.sizes)} parts"
            console.print(f"  {self.title}: {parts}, {pace}about {left:.0f} s left", style="dim")
            self.reported = now


class _Begun:
    """Counts how often each item was begun: Ray Data begins one anew for ever whose process dies."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()

    def again(self, place: int) -> int:
        """Count an item as begun once more; return how often it was."""
        self.times[place] += 1
        return self.times[place]


class _Each:
    """Adapts a worker that maps one item to the batches that Ray Data hands out."""

    def __init__(self, worker: type, items: list[dict[str, Any]], begun: Any, title: str, *arguments: Any):
        keep_memory()
        self.begun, self.title = begun, title
        resolved = [ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in arguments]
        self.items = ray.get(items) if isinstance(items, ray.ObjectRef) else items
        self.error: Exception | None = None
        try:
            self.worker = worker(*resolved)
        except (ValueError, OSError) as error:  # Ray would call the actor dead, in a thousand lines
            self.error = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the worker's result; its own ValueError or OSError travels as a message instead of a RayTaskError."""
        place = int(batch["item"][0])
        try:
            if self.error:
                raise self.error
            if ray.get(self.begun.again.remote(place)) > RETRIES + 1:
                raise ChildProcessError(f"{_part(self.title, place, self.items)}: {DIED}")
            result = {FAILED: False} | self.worker(self.items[place])
        except (ValueError, OSError) as error:
            result = {FAILED: True, "message": str(error)}
        result["item"] = place
        return {name: [value] for name, value in result.items()}


def on_worker(
    function: Callable[..., Any],
    *arguments: Any,
    resources: dict[str, float] | None = None,
    retries: int = RETRIES,
    again: bool = False,
    **options: Any,
) -> Any:
    """Run a function once, on a node of the cluster that has the resources (default one CPU), and return its result.

    retries: how often it begins anew when its worker process or node dies; again: or when it raises an error. The
    function's own ValueError or OSError is raised here; OSError if its process or node dies again and again. While no
    node has the resources it waits for one, and says so.
    """
    needs = dict(resources or {"CPU": 1.0})
    named: dict[str, Any] = {
        "num_cpus": needs.pop("CPU", 0.0),
        "num_gpus": needs.pop("GPU", 0.0),
        "memory": needs.pop("memory", None),
    }
    # named here, not in options: only so does Ray end a process that held a GPU, and free the GPU's memory
    remote = ray.remote(resources=needs, max_retries=retries, retry_exceptions=again, **named)(_tuned)
    reference = remote.options(name=function.__name__).remote(function, *arguments, **options)
    _wait(reference, function.__name__, resources or {"CPU": 1.0})
    return _result(reference, function.__name__)


def _wait(reference: Any, what: str, needs: Mapping[str, float]) -> None:
    """Wait for a task; say once if it waits for a node that is not there, such as one that was lost."""
    while not ray.wait([reference], timeout=LOOK_EVERY_S)[0]:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
            console.print(f"[yellow]waits[/]  {what}: no node of the cluster has {asked}; it begins when one comes")
            return


def _tuned(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function in a process that may have run others, and will."""
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
    except (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError) as error:
        raise ChildProcessError(
            f"{what}: its node was lost again and again; bring nodes back that stay, then run the same again"
        ) from error
