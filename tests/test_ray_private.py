"""What is used of Ray beyond its public API is there, does what it is used for, and is used in one place."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import ray
import ray.cloudpickle
import ray.data
from ray.util.placement_group import placement_group, placement_group_table
from waiting import wait_for

from tlm_ray import ray_private

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
pytestmark = pytest.mark.usefixtures("ray_cluster")
PACKAGE = Path(ray_private.__file__).parent


def test_only_one_module_uses_private_names_of_ray():
    private = re.compile(r"^\s*(?:from|import) ray[\w.]*(?:\._|\.v2)|\bray\._private|_execute_to_iterator", re.M)
    users = [file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py") if private.search(file.read_text())]
    assert users == ["ray_private.py"]


@ray.remote(max_retries=2)
def tries(file: str) -> int:
    if ray_private.attempt() < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return ray_private.attempt()


def test_a_worker_is_one_and_a_driver_is_not():
    assert not ray_private.is_worker()
    assert ray.get(ray.remote(ray_private.is_worker).remote())


def test_a_task_knows_how_often_it_was_lost(tmp_path):
    assert ray.get(tries.remote("")) == 2


@ray.remote(num_cpus=0)
class Creator:
    """An actor that reserves a CPU."""

    def create(self) -> str:
        self.group = placement_group([{"CPU": 1}])
        ray.get(self.group.ready())
        return self.group.id.hex()


def kept(group: str) -> bool:
    return placement_group_table()[group]["state"] == "CREATED"


def test_a_place_is_free_again_when_the_actor_that_reserved_it_is_dead_and_no_other():
    dead, alive = Creator.remote(), Creator.remote()
    groups = ray.get([dead.create.remote(), alive.create.remote()])
    ray_private.free_orphans()
    assert [kept(group) for group in groups] == [True, True]
    ray.kill(dead)
    ray_private.free_orphans(within_s=60.0)
    wait_for(lambda: not kept(groups[0]))
    assert kept(groups[1])
    ray.kill(alive)
    ray_private.free_orphans(within_s=60.0)


def test_no_node_is_about_to_go():
    assert ray_private.draining_nodes() == set()  # one that is: tests/test_spot.py


def test_a_dataset_submits_as_many_tasks_as_its_strategy_allows():
    dataset = ray.data.from_items([{"number": number} for number in range(4)], override_num_blocks=2)
    ray_private.only_cap_tasks(dataset.context)
    (policy,) = dataset.context.get_config("backpressure_policies.enabled")
    assert policy.__name__ == "ConcurrencyCapBackpressurePolicy"
    here = ray.data.DataContext.get_current()
    assert here.get_config("backpressure_policies.enabled", None) is None, "a user's datasets keep their settings"
    doubled = dataset.map_batches(lambda batch: {"twice": batch["number"] * 2}, batch_size=1)
    with ray_private.streamed(doubled) as rows:
        assert sorted(row["twice"] for row in rows) == [0, 2, 4, 6]
    executor = ray.data._internal.execution.streaming_executor_state
    assert executor.WAIT_FOR_TASK_COMPLETION_TIMEOUT_S == ray_private.WAIT_S
