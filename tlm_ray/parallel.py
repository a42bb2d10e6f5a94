"""Work spread over the cluster's CPUs: a class applied to a list of items by a pool of Ray Data actors."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from rich.console import Console

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
) -> Iterator[dict[str, Any]]:
    """Yield `worker(*arguments)(item)` for each item, in the order in which they finish.

    Large arguments travel once a node when they are `ray.put` references. A lost actor or node repeats only the items
    that it held. A line of progress is printed every few seconds.
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
        )
        .iter_rows()
    )
    started = reported = time.monotonic()
    for done, row in enumerate(rows, 1):
        if row.pop(FAILED):
            raise ValueError(row["message"])
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S and done < len(items):
            left = (now - started) / done * (len(items) - done)
            console.print(f"  {title}: {done} of {len(items)} parts, about {left:.0f} s left", style="dim")
            reported = now
        yield row


class _Each:
    """Adapts a worker that maps one item to the batches that Ray Data hands out."""

    def __init__(self, worker: type, items: list[dict[str, Any]], *arguments: Any):
        resolved = [ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in arguments]
        self.items = ray.get(items) if isinstance(items, ray.ObjectRef) else items
        self.worker = worker(*resolved)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the worker's result; what it says about its input travels as a value, not as Ray's account of it."""
        try:
            result = {FAILED: False} | self.worker(self.items[int(batch["item"][0])])
        except (ValueError, OSError) as error:
            result = {FAILED: True, "message": str(error)}
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
    try:
        return ray.get(remote.remote(*arguments, **options))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError | OSError):
            raise error.cause from error
        raise
