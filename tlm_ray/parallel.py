"""Work spread over the cluster's CPUs: a class applied to a list of items by a pool of Ray Data actors."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from rich.console import Console

from tlm_ray.process import keep_memory

console = Console(stderr=False, highlight=False, soft_wrap=True)
REPORT_EVERY_S = 5.0
FAILED = "failed"  # a column of every result


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

    Large arguments travel once a node when they are `ray.put` references. A lost actor or node repeats only the items
    that it held. A line of progress is printed every few seconds; size: the entry of the items whose rate it tells.
    gpus: what each actor needs beside its CPU.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # each() prints its own, with the title that a reader knows
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    rows = (
        ray.data.from_items([{"item": i} for i in range(len(items))], override_num_blocks=len(items))
        .map_batches(
            _Each,
            batch_size=1,
            fn_constructor_args=[worker, ray.put(list(items)), *arguments],
            compute=ray.data.ActorPoolStrategy(size=max(1, min(workers, len(items)))),
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


def tasks(
    items: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
) -> list[Any]:
    """Return `function(item, *arguments)` of all items, in their order, run by plain Ray tasks.

    For work that needs nothing prepared: a pool of actors takes three seconds to start, tasks take none.
    """
    remote = ray.remote(max_retries=3, num_cpus=1)(function)
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
            results[place] = _result(reference)
            progress.done(place)
    return [results[place] for place in range(len(items))]


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


class _Each:
    """Adapts a worker that maps one item to the batches that Ray Data hands out."""

    def __init__(self, worker: type, items: list[dict[str, Any]], *arguments: Any):
        keep_memory()
        resolved = [ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in arguments]
        self.items = ray.get(items) if isinstance(items, ray.ObjectRef) else items
        self.worker = worker(*resolved)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the worker's result; what it says about its input travels as a value, not as Ray's account of it."""
        place = int(batch["item"][0])
        try:
            result = {FAILED: False} | self.worker(self.items[place])
        except (ValueError, OSError) as error:
            result = {FAILED: True, "message": str(error)}
        result["item"] = place
        return {name: [value] for name, value in result.items()}


def on_worker(
    function: Callable[..., Any],
    *arguments: Any,
    resources: dict[str, float] | None = None,
    **options: Any,
) -> Any:
    """Run a function once, on a node of the cluster that has the resources (default one CPU), and return its result."""
    needs = dict(resources or {"CPU": 1.0})
    named = {"num_cpus": needs.pop("CPU", 0.0), "num_gpus": needs.pop("GPU", 0.0), "memory": needs.pop("memory", None)}
    remote = ray.remote(max_retries=3)(function).options(resources=needs, **named)
    return _result(remote.remote(*arguments, **options))


def _result(reference: Any) -> Any:
    """Wait for a task's result; what it says about its input is raised as itself, not as Ray's account of it."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError | OSError):
            raise error.cause from error
        raise
