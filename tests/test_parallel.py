"""What a worker says about its input, or that it died, reaches the driver in one sentence."""

import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray
import ray.cloudpickle
from ray.exceptions import LocalRayletDiedError, NodeDiedError, ObjectLostError, RuntimeEnvSetupError
from waiting import wait_for

from tlm_ray import parallel
from tlm_ray.parallel import failures
from tlm_ray.parallel.held import Held

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
pytestmark = pytest.mark.usefixtures("ray_cluster")
CPUS = 2  # of `ray_cluster`
OPTIONS = {"workers": 2, "title": "work"}


class Unfit:
    """A worker whose encoder is not there."""

    def __init__(self, error, name):
        raise error(f"encoder {name!r}: no such model")

    def __call__(self, item):
        return {}


class Doubler:
    def __call__(self, item):
        return {"twice": 2 * item["number"]}


def half(item, divisor):
    if item["number"] == 3:
        raise ValueError(f"number {item['number']}: is odd")
    return item["number"] // divisor


def die(item):
    if item["file"] == "b.csv":
        os.kill(os.getpid(), signal.SIGKILL)


def die_alone():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError])
def test_an_error_of_a_workers_constructor_is_raised_as_it_is(error):
    made = parallel.each([{"number": n} for n in range(3)], Unfit, arguments=(error, "typo"), **OPTIONS)
    with pytest.raises(error, match=r"^encoder 'typo': no such model$"):
        list(made)


def test_every_item_is_worked_on_once():
    made = parallel.each([{"number": n} for n in range(7)], Doubler, arguments=(), **OPTIONS)
    assert sorted(row["twice"] for row in made) == [0, 2, 4, 6, 8, 10, 12]


class Made:
    """A worker that tells which process made it."""

    def __init__(self):
        self.made = f"{os.getpid()} {time.monotonic()}"

    def __call__(self, item):
        return self.made


def test_a_process_makes_its_worker_once_and_stays_for_the_next_work():
    items = [{"number": n} for n in range(20)]
    first, second = (set(parallel.each(items, Made, arguments=(), **OPTIONS)) for _ in range(2))
    assert len(first) <= CPUS and len(second) <= CPUS, "each process made one"
    assert not first & second, "what it holds is of one work alone"
    assert {made.split()[0] for made in first} & {made.split()[0] for made in second}, "and worked on both"


def test_what_a_process_holds_is_let_go_when_nobody_asks_for_more(monkeypatch):
    monkeypatch.setattr("tlm_ray.parallel.held.keep_memory", lambda: None)  # it would be this process'
    holder, made_of = Held(), ray.put((Made, (), ["item"]))
    worker, items = holder.get(made_of)
    assert items == ["item"]
    holder.forget_later()
    assert holder.get(made_of)[0] is worker, "asked for again in time"
    alive = weakref.ref(worker)
    del worker
    monkeypatch.setattr("tlm_ray.parallel.held.KEPT_S", 0.05)
    holder.forget_later()
    wait_for(lambda: alive() is None)


def test_the_rest_of_work_that_nobody_wants_is_ended_though_a_cancellation_is_lost(monkeypatch):
    met, cancel = set(), ray.cancel

    def lossy(task, **options):  # as Ray's is for a task that its process has not begun
        if task in met:
            cancel(task, **options)
        met.add(task)

    monkeypatch.setattr(ray, "cancel", lossy)
    begun = parallel.each([{"number": n} for n in range(3)], Waits, arguments=(), workers=3, title="endless work")
    assert next(begun) == 0
    begun.close()
    assert met
    time.sleep(1)  # a task that its process has not begun takes its title later
    wait_for(lambda: not tasks_named("endless work"), timeout_s=30)


class Waits:
    def __call__(self, item):
        time.sleep(600 * item["number"])
        return item["number"]


def tasks_named(name):
    """List the processes that work on something of this name."""
    children = psutil.Process().children(recursive=True)
    titles = (" ".join(child.cmdline()) for child in children if child.status() != psutil.STATUS_ZOMBIE)
    return [title for title in titles if name in title]


WITH_GPUS = """
import os, sys
import psutil, ray
from tlm_ray import parallel, ray_options
from waiting import wait_for

class OnGpu:
    def __init__(self, died):
        self.died = died

    def __call__(self, item):
        if item["number"] == 5 and not os.path.exists(self.died):
            open(self.died, "w").close()
            os._exit(1)
        return item["number"], os.getpid(), ray.get_gpu_ids(), ray.get_runtime_context().get_assigned_resources()

ray.cloudpickle.register_pickle_by_value(sys.modules["__main__"])
ray.init(address="local", num_cpus=1, num_gpus=2, **ray_options())
parallel.items.GPU_ITEMS = 2
items = [{"number": n} for n in range(8)]
rows = list(parallel.each(items, OnGpu, arguments=sys.argv[1:], workers=8, title="gpu", gpus=1))
assert sorted(row[0] for row in rows) == list(range(8)), rows
assert all(len(gpus) == 1 and needs == {"GPU": 1.0} for _, _, gpus, needs in rows), rows
processes = {process for _, process, *_ in rows}
assert len(processes) == 4, f"tasks of two items, of which one died and was retried: {rows}"
wait_for(lambda: not any(map(psutil.pid_exists, processes)))
print("all ended")
"""


@pytest.mark.long
def test_processes_that_had_a_gpu_end_and_one_that_dies_costs_its_items(tmp_path):
    command = [sys.executable, "-c", WITH_GPUS, str(tmp_path / "died")]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
    assert "all ended" in done.stdout, done.stdout + done.stderr


def test_results_of_tasks_are_in_the_order_of_the_items():
    items = [{"number": n} for n in (8, 2, 6, 4)]
    assert parallel.ray_tasks(items, half, arguments=(2,), **OPTIONS) == [4, 1, 3, 2]
    assert parallel.ray_tasks([], half, arguments=(2,), **OPTIONS) == []


def test_an_error_of_a_task_is_raised_as_it_is():
    with pytest.raises(ValueError, match=r"^number 3: is odd$"):
        parallel.ray_tasks([{"number": 3}], half, arguments=(2,), **OPTIONS)


def test_a_worker_that_dies_each_time_is_named_with_its_item():
    items = [{"file": "a.csv"}, {"file": "b.csv"}]
    with pytest.raises(
        OSError, match=r"work, part 2 of 2 \({'file': 'b.csv'}\): .* died again and again.* fewer workers"
    ):
        parallel.ray_tasks(items, die, arguments=(), **OPTIONS)


class Dies:
    def __call__(self, item):
        die(item)
        return {"file": item["file"]}


def test_an_item_whose_worker_dies_each_time_is_named():
    made = parallel.each([{"file": "a.csv"}, {"file": "b.csv"}], Dies, arguments=(), **OPTIONS)
    with pytest.raises(OSError, match=r"work, part 2 of 2 \({'file': 'b.csv'}\): .* died again and again"):
        list(made)


def test_a_single_worker_that_dies_each_time_is_named():
    with pytest.raises(OSError, match=r"^die_alone: its worker process died again and again"):
        parallel.on_worker(die_alone)


LOST = "the node it was running on is dead or unavailable"


@pytest.mark.parametrize(
    "error", [NodeDiedError(LOST), LocalRayletDiedError(LOST), ObjectLostError("0a", "", ""), RuntimeEnvSetupError("")]
)
def test_a_node_that_is_lost_each_time_is_told_as_that(monkeypatch, error):
    def lost(reference):
        raise error

    monkeypatch.setattr(ray, "get", lost)
    with pytest.raises(OSError, match=r"^half: its node was lost again and again; bring nodes back that stay"):
        parallel.on_worker(half, {"number": 2}, 2)


def test_a_task_that_no_node_has_room_for_says_once_what_it_waits_for(monkeypatch):
    monkeypatch.setattr(failures, "LOOK_EVERY_S", 0.01)
    said: list[str] = []
    monkeypatch.setattr(failures.console, "print", said.append)
    with failures.tells_of_missing_nodes("train_alone", {"CPU": 1.0, "GPU": 1.0}):
        wait_for(lambda: said)
    assert [" ".join(line.split()) for line in said] == [
        "[yellow]waits[/] train_alone: no node of the cluster has CPU 1, GPU 1; it starts when one joins"
    ]


def test_a_full_cluster_is_waited_for_without_a_word(monkeypatch):
    looked = iter([False, False, True])
    monkeypatch.setattr(failures.console, "print", lambda line: pytest.fail(line))
    failures._look_for_node("train_alone", {"CPU": 1.0}, SimpleNamespace(wait=lambda seconds: next(looked)))
    assert list(looked) == [], "it looked on until the work was done"
