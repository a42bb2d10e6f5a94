"""What a worker says about its input, or that it died, reaches the driver in one sentence."""

import os
import signal
import sys

import pytest
import ray
import ray.cloudpickle
from ray.exceptions import LocalRayletDiedError, NodeDiedError

from tlm_ray import parallel

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
pytestmark = pytest.mark.usefixtures("ray_cluster")
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


def test_an_item_whose_worker_of_a_pool_dies_each_time_is_named():
    made = parallel.each([{"file": "a.csv"}, {"file": "b.csv"}], Dies, arguments=(), **OPTIONS)
    with pytest.raises(OSError, match=r"work, part 2 of 2 \({'file': 'b.csv'}\): .* died again and again"):
        list(made)


def test_a_single_worker_that_dies_each_time_is_named():
    with pytest.raises(OSError, match=r"^die_alone: its worker process died again and again"):
        parallel.on_worker(die_alone)


@pytest.mark.parametrize("error", [NodeDiedError, LocalRayletDiedError])
def test_a_node_that_is_lost_each_time_is_told_as_that(monkeypatch, error):
    def lost(reference):
        raise error("the node it was running on is dead or unavailable")

    monkeypatch.setattr(ray, "get", lost)
    with pytest.raises(OSError, match=r"^half: its node was lost again and again; bring nodes back that stay"):
        parallel.on_worker(half, {"number": 2}, 2)


def test_a_task_that_no_node_has_room_for_says_once_what_it_waits_for(monkeypatch, capsys):
    answers = iter([([], [1]), ([], [1]), ([1], [])])
    monkeypatch.setattr(ray, "wait", lambda references, timeout: next(answers))
    parallel._wait([None], "train_alone", {"CPU": 1.0, "GPU": 1.0})
    said = " ".join(capsys.readouterr().out.split())
    assert said == "waits train_alone: no node of the cluster has CPU 1, GPU 1; it begins when one comes"
    answers = iter([([], [1]), ([], [1]), ([1], [])])
    parallel._wait([None], "train_alone", {"CPU": 1.0})
    assert not capsys.readouterr().out, "a full cluster is waited for as ever"
