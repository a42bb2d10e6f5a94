"""All that tlm_ray uses of Ray beyond its public API; tests/test_ray_private.py names each at an upgrade of Ray."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    import ray.data

WAIT_S = 0.02
LOOK_EVERY_S = 0.1
CANCEL_S = 10.0  # 36 cancellations took at most 1 s


def draining_nodes() -> set[str]:
    """Return the ids of the nodes that are about to be removed, in 0.3 ms; the State API needs the dashboard."""
    from ray._private.state import state

    return set(state.get_draining_nodes())


def free_orphans(*, within_s: float = 0.0) -> None:
    """Remove this job's placement groups whose creator is a dead actor, with all their processes.

    Ray Train's controller reserves its workers' resources as a placement group. Ray keeps a dead controller's group
    until the whole job ends, so tasks that need its CPUs and GPUs wait forever. Ray Train's own remedy asks the State
    API, a part of the dashboard, which `ray_options` leaves out. Groups of live controllers, of other jobs and of
    drivers are kept. within_s: how long to look for one, because a death is known later.
    """
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    until = time.monotonic() + within_s
    while not (orphans := _orphans()) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    for orphan in orphans:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(orphan)))


def _orphans() -> list[bytes]:
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]

    job, nobody = ray.get_runtime_context().get_job_id(), (b"", ray.ActorID.nil().binary())
    rows = state._connect_and_get_accessor().get_placement_group_table()
    return [
        group.placement_group_id
        for group in map(PlacementGroupTableData.FromString, rows)
        if group.creator_actor_dead and group.creator_actor_id not in nobody
        if group.creator_job_id.hex() == job and group.state != PlacementGroupTableData.REMOVED
    ]


def attempt() -> int:
    """Return how often the current task was lost before: 0 at first."""
    worker: Any = ray._private.worker.global_worker
    return worker.core_worker.get_current_task_attempt_number()


def is_worker() -> bool:
    """Return whether this process is one of Ray's workers; the public `get_task_id` warns in all others."""
    worker: Any = ray._private.worker.global_worker
    return bool(worker.mode == ray.WORKER_MODE)


def only_cap_tasks(context: "ray.data.DataContext") -> None:
    """Have a dataset submit as many tasks as its strategy allows, whatever the cluster has now; Ray then schedules.

    By default Ray Data runs one task until an actor has told it what the cluster has, for a second or more of each
    execution, and for 20 s where nodes are added: 16 tasks of 0.2 s on 2 CPUs took 3.4 s instead of 1.7. The price is
    that nothing limits the memory of results, so these must be small.
    """
    from ray.data._internal.execution import streaming_executor_state
    from ray.data._internal.execution.backpressure_policy import (
        ENABLED_BACKPRESSURE_POLICIES_CONFIG_KEY,
        ConcurrencyCapBackpressurePolicy,
    )

    context.set_config(ENABLED_BACKPRESSURE_POLICIES_CONFIG_KEY, [ConcurrencyCapBackpressurePolicy])
    context.enable_progress_bars = context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.issue_detectors_config.detectors = []
    context.memory_usage_poll_interval_s = None
    # it waits for all running tasks or so long, 0.1 s by default, before it starts another
    streaming_executor_state.WAIT_FOR_TASK_COMPLETION_TIMEOUT_S = WAIT_S


@contextlib.contextmanager
def streamed(dataset: "ray.data.Dataset") -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the rows of a dataset as its tasks finish; whatever still runs at the end is stopped.

    An iterator of the public API that is dropped leaves its tasks running.
    """
    bundles, _, executor = dataset._execute_to_iterator()
    try:
        yield (row for bundle in bundles for entry in bundle.blocks for row in ray.get(entry.ref).to_pylist())
    finally:
        if ray.is_initialized():
            for operator in executor._topology:
                operator._cancel_active_tasks = partial(_cancel_active_tasks, operator)
            executor.shutdown(force=True)


def _cancel_active_tasks(operator: Any, force: bool) -> None:
    """Cancel the tasks of Ray Data's operator until they have ended.

    Ray Data cancels once and does not wait. Ray loses that where a process has received the task but not begun it:
    in 2 of 39 works that were closed at their first result (Ray 2.60).
    """
    waitables = [task.get_waitable() for task in operator.get_active_tasks()]
    running = [one._generator_ref if isinstance(one, ray.ObjectRefGenerator) else one for one in waitables]
    until = time.monotonic() + CANCEL_S
    while running and time.monotonic() < until:
        for task in running:
            ray.cancel(task, force=force)
        _, running = ray.wait(running, num_returns=len(running), timeout=LOOK_EVERY_S, fetch_local=False)
