"""Work spread over the cluster's CPUs: a class applied to a list of items by a pool of actors, or a function by tasks.

Ray Data's pool of actors did this until commit 81960c6. It begins an item anew for ever whose process dies, needs three
seconds to start, and its helpers, actors without CPUs that are restarted for ever, keep idle nodes of GPUs alive.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray

from tlm_ray import events, metrics
from tlm_ray.console import console
from tlm_ray.notices import draining
from tlm_ray.process import keep_memory, tune_torch

REPORT_EVERY_S = 5.0
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
    """Yield `worker(*arguments)(item)` for each item, in the order in which they finish, from a pool of Ray actors.

    Large arguments travel once per node when they are `ray.put` references. A lost actor or node repeats only the item
    that it had. A line of progress is printed every few seconds; size: the entry of the items whose rate it tells.
    gpus: what each actor needs instead of a CPU. A worker's own ValueError or OSError is raised here, be it of its
    constructor or of an item; OSError names an item whose worker dies again and again.
    """
    progress = _Progress(title, items, size)
    pool = _Pool(items, worker, arguments, gpus, progress)
    try:
        for _ in range(min(max(1, workers), len(items))):
            pool.start()
        for place, row in pool.results():
            progress.done(place)
            yield row
    finally:
        pool.end()
        progress.end()


READY = -1  # instead of an item's place, of an actor that makes its worker


class _Pool:
    """Actors, each of which makes a worker and then has one item at a time."""

    def __init__(
        self,
        items: Sequence[dict[str, Any]],
        worker: type,
        arguments: Sequence[Any],
        gpus: float,
        progress: "_Progress",
    ):
        # a node of GPUs may offer no CPU, so that only what needs a GPU comes there
        self.needs = {"GPU": gpus} if gpus else {"CPU": 1.0}
        self.actor: Any = ray.remote(num_cpus=self.needs.get("CPU", 0), num_gpus=gpus)(_Actor)
        self.items, self.made_of, self.title, self.progress = items, (worker, *arguments), progress.title, progress
        self.waiting, self.lost = deque(range(len(items))), Counter[int]()
        self.working: dict[Any, tuple[Any, str, int]] = {}  # an actor, its node, and the item's place

    def start(self) -> None:
        """Start an actor, for which the cluster may have no room yet."""
        actor = self.actor.remote()
        self.working[actor.make.remote(*self.made_of)] = actor, "", READY

    def results(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the place and the result of each item as they finish."""
        while self.waiting or any(place != READY for *_, place in self.working.values()):
            reference = _wait(list(self.working), self.title, self.needs)
            actor, node, place = self.working.pop(reference)
            try:
                row = _result(reference, self.title)
            except ChildProcessError:
                self._lose(place)
                continue
            node = row if place == READY else node
            if self.waiting and node in draining():
                self.start()  # elsewhere: an item begun here would be lost with the node
            elif self.waiting:
                following = self.waiting.popleft()
                self.working[actor.work.remote(self.items[following])] = actor, node, following
                self.progress.queue(len(self.waiting))
            if place != READY:
                yield place, row

    def _lose(self, place: int) -> None:
        """Begin an item anew, on another actor, whose own is lost; OSError if that happens again and again."""
        self.lost[place] += 1
        if self.lost[place] > RETRIES:
            what = self.title if place == READY else _part(self.title, place, self.items)
            raise ChildProcessError(f"{what}: {DIED}")
        if place != READY:
            self.waiting.appendleft(place)
            self.progress.lost(place, len(self.waiting))
        self.start()

    def end(self) -> None:
        """Stop what still works."""
        for actor, *_ in self.working.values():
            ray.kill(actor)


class _Actor:
    """Makes a worker when it is told to, since an actor whose constructor raises is dead in a thousand lines."""

    def make(self, worker: type, *arguments: Any) -> str:
        """Make the worker; return the id of its node."""
        keep_memory()
        self.worker = worker(*arguments)
        return ray.get_runtime_context().get_node_id()

    def work(self, item: dict[str, Any]) -> Any:
        return self.worker(item)


def ray_tasks(
    items: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    *,
    arguments: Sequence[Any],
    workers: int,
    title: str,
) -> list[Any]:
    """Return `function(item, *arguments)` of all items, in their order, run by plain Ray tasks.

    For work that needs nothing prepared: a pool of actors takes a second to start, tasks take none. A task's own
    ValueError or OSError is raised here; OSError names the item whose worker process dies again and again.
    """
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(function)
    progress = _Progress(title, items, "")
    waiting = list(range(len(items)))[::-1]
    running: dict[Any, int] = {}
    results: dict[int, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, workers):
                place = waiting.pop()
                running[remote.remote(items[place], *arguments)] = place
                progress.queue(len(waiting))
            for reference in ray.wait(list(running))[0]:
                place = running.pop(reference)
                results[place] = _result(reference, _part(title, place, items))
                progress.done(place)
    finally:
        progress.end()
    return [results[place] for place in range(len(items))]


def _part(title: str, place: int, items: Sequence[dict[str, Any]]) -> str:
    """Name an item in a message."""
    return f"{title}, part {place + 1} of {len(items)} ({str(items[place])[:SHOWN]})"


class _Progress:
    """Tells those who watch how far the items are, and prints a line every few seconds while there is more to do."""

    def __init__(self, title: str, items: Sequence[dict[str, Any]], size: str):
        self.title, self.size = title, size
        self.sizes = [item[size] if size else 1 for item in items]
        self.parts = self.work = 0
        self.started = self.reported = time.monotonic()
        self.queue(len(items))

    def queue(self, waiting: int) -> None:
        """Tell how many items wait; what neither waits nor is done is worked on."""
        self.waiting = waiting
        metrics.ITEMS_WAITING.set(waiting, work=self.title)
        metrics.ITEMS_RUNNING.set(len(self.sizes) - self.parts - waiting, work=self.title)

    def lost(self, place: int, waiting: int) -> None:
        """Count the item at a place as begun anew."""
        self.queue(waiting)
        metrics.ITEMS_LOST.add(work=self.title)
        events.warn("item begun anew", work=self.title, part=place + 1, parts=len(self.sizes))

    def end(self) -> None:
        """Tell that nothing is worked on any more, be it done or given up."""
        self.parts = len(self.sizes)
        self.queue(0)

    def done(self, place: int) -> None:
        """Count the item at a place as done."""
        self.parts, self.work = self.parts + 1, self.work + self.sizes[place]
        self.queue(self.waiting)
        metrics.ITEMS.add(work=self.title)
        if self.size == "passages":
            metrics.PASSAGES.add(self.sizes[place], work=self.title)
        now = time.monotonic()
        if now - self.reported > REPORT_EVERY_S and self.parts < len(self.sizes):
            rate = self.work / (now - self.started)
            pace = f"{rate:,.0f} {self.size}/s, " if self.size else ""
            left = (sum(self.sizes) - self.work) / rate
            parts = f"{self.parts} of {len(self.sizes)} parts"
            console.print(f"  {self.title}: {parts}, {pace}about {left:.0f} s left", style="dim")
            self.reported = now


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
    _wait([reference], function.__name__, resources or {"CPU": 1.0})
    return _result(reference, function.__name__)


def _wait(references: list[Any], what: str, needs: Mapping[str, float]) -> Any:
    """Wait for one of some tasks and return it; say once if they need a node that is not there, such as a lost one."""
    told = False
    while not (ready := ray.wait(references, timeout=LOOK_EVERY_S)[0]):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not told and not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            asked = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
            console.print(f"[yellow]waits[/]  {what}: no node of the cluster has {asked}; it begins when one comes")
            events.warn("waits for a node", work=what, resources=asked)
            told = True
    return ready[0]


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
    except (
        ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.RayActorError
    ) as error:  # fmt: skip
        raise ChildProcessError(f"{what}: {DIED}") from error
    except (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError) as error:
        raise ChildProcessError(
            f"{what}: its node was lost again and again; bring nodes back that stay, then run the same again"
        ) from error
