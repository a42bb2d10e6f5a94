"""Work on a list of items with Ray Data: one row of the dataset is one item, one task and one file of the result.

The tasks need no actors, so idle worker processes are reused by the next dataset; starting one takes two seconds. A
process keeps its worker object (`held`). Retries are counted here, because those of Ray Data have no limit.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from tlm_ray import ray_private
from tlm_ray.parallel.failures import RETRIES, lost, named, raised, tells_of_missing_nodes
from tlm_ray.parallel.held import held
from tlm_ray.parallel.local import is_local, made
from tlm_ray.parallel.progress import Progress, attempts

if TYPE_CHECKING:
    import ray.data

# The name keeps these processes apart from training processes, where `keep_memory` would cost memory
OWN = {"env_vars": {"TLM_RAY_PROCESS": "data"}}
GPU_ITEMS = 8  # per GPU task; its worker exits afterwards to free GPU memory, and a restart takes 10 s


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
    whose rate it shows. Call it from the driver: a dataset that a task starts would keep that task's node.

    A worker's own ValueError or OSError is raised here, from its constructor or from an item. OSError names an item
    whose process or node was lost on every retry.
    """
    if is_local():
        yield from map(made(worker, arguments), items)
        return
    if not items:
        return
    progress = Progress(title, items, size, workers)
    needs = {"GPU": gpus} if gpus else {"CPU": 1.0}  # a GPU node may offer no CPU, for GPU tasks alone
    try:
        with (
            tells_of_missing_nodes(title, needs),
            ray_private.streamed(_dataset(items, worker, arguments, workers, title, gpus)) as rows,
        ):
            for row in rows:
                yield from _results(row["done"], progress)
    except ray.exceptions.RayError as error:
        raise raised(error, title) from error
    finally:
        progress.end()
        if ray_private.is_worker():
            gc.collect()  # blocks in reference cycles would keep this node from being idle (0.2 s)


def _results(done: tuple[range, int, Exception | None, list[Any]], progress: Progress) -> Iterator[Any]:
    """Yield the results of a task's items; raise its error."""
    places, attempt, error, results = done
    for _ in range(attempt):
        progress.lost(places[0])
    if error is not None:
        raise error
    for place, result in zip(places, results, strict=True):
        progress.done(place)
        yield result


def _dataset(
    items: Sequence[dict[str, Any]],
    worker: Callable[..., Any],
    arguments: Sequence[Any],
    workers: int,
    title: str,
    gpus: float,
) -> "ray.data.Dataset":
    """Lay out the work; each row of the result has one entry, "done"."""
    import ray.data  # here: it takes 0.5 s, which a dry run can save

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    together = _items_per_task(len(items), workers, gpus)
    tasks = [{"first": first, "stop": min(first + together, len(items))} for first in range(0, len(items), together)]
    dataset = ray.data.from_items(tasks, override_num_blocks=len(tasks))
    dataset.set_name(title.replace(" ", "_"))
    ray_private.only_cap_tasks(dataset.context)
    shared = ray.put((worker, tuple(arguments), list(items)))
    return dataset.map_batches(
        _titled(partial(_work, [shared], title), title),  # in a list: fetched once per process
        batch_size=1,
        compute=ray.data.TaskPoolStrategy(size=min(max(1, workers), len(tasks))),
        num_cpus=0 if gpus else 1,
        num_gpus=gpus or None,
        max_calls=1 if gpus else None,  # the process ends, so that its GPU memory is free
        runtime_env=OWN,
    )


def _items_per_task(items: int, workers: int, gpus: float) -> int:
    if not gpus:
        return 1
    slots = min(workers, int(ray.cluster_resources().get("GPU", 0) / gpus) or workers)
    return min(GPU_ITEMS, max(1, -(-items // slots)))


def _titled(function: Callable[[Any], Any], title: str) -> Callable[[Any], Any]:
    """Return a function of this name, which processes and the dashboard show."""

    def work(batch: Any) -> Any:
        return function(batch)

    work.__name__ = work.__qualname__ = title
    return work


def _work(shared: list[ray.ObjectRef], title: str, batch: dict[str, Any]) -> dict[str, Any]:
    """Work on the items of a task with the cached worker of this process, or a new one.

    An error of the worker is returned, not raised: Ray Data would log it.
    """
    import numpy as np

    attempt, places = attempts(title), range(int(batch["first"][0]), int(batch["stop"][0]))
    error: Exception | None = None
    results: list[Any] = []
    try:
        if attempt > RETRIES:
            raise lost(named(title, places, ray.get(shared[0])[2]))
        worker, items = held.get(shared[0])
        results = [worker(items[place]) for place in places]
    except (ValueError, OSError) as own:
        error = own
    finally:
        held.forget_later()
    done = np.empty(1, object)
    done[0] = (places, attempt, error, results)
    return {"done": done}
