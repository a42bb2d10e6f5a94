"""What every retry would meet again ends a training at once, with its own cause in one line; lost workers do not."""

import inspect
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from ray.exceptions import ActorDiedError
from ray.train import FailureConfig
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2.api.exceptions import WorkerGroupError
from small import small_flow, small_recipe

from tlm_ray.compute import Compute
from tlm_ray.runs.stages.making import make
from tlm_ray.training import driver
from tlm_ray.training.errors import TrainingStopped, WorkerFailed
from tlm_ray.training.failures import OnlyLostWorkers
from tlm_ray.training.objectives import Mlm


@dataclass(frozen=True)
class Misread(Mlm):
    """An objective with a mistake: the last worker reads a place that is not there, and notes that it did."""

    notes: str = ""

    def loss(self, head: Any, features: Any, prediction: Any) -> Any:
        first = not dist.is_initialized()
        if first or dist.get_rank() == dist.get_world_size() - 1:
            with Path(self.notes).open("a") as notes:
                notes.write("read\n")
            return self.read([], len(prediction.values))
        return super().loss(head, features, prediction)

    @staticmethod
    def read(values: list[Any], place: int) -> Any:
        return values[place]


@dataclass(frozen=True)
class Held(Mlm):
    """An objective that cannot be sent."""

    lock: ClassVar[Any] = None

    def __reduce__(self) -> Any:
        return threading.Lock, (threading.Lock(),)


def train(data: Path, root: Path, workers: int, objective: Any) -> str:
    """Train a recipe with an objective of one's own; return how it ended."""
    flow = small_flow(data, root, compute=Compute(workers=workers), workers=2)
    stage = flow.stages(small_recipe(k=0, objectives=(objective,)), "topics", 0).stage_one
    with pytest.raises(TrainingStopped) as stopped:
        make([stage], flow.execution.root)
    return str(stopped.value)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_parts_own_code_is_met_once(data, tmp_path, workers):
    notes = tmp_path / "notes"
    said = train(data, tmp_path / "root", workers, Misread(notes=str(notes)))
    assert notes.read_text() == "read\n"
    assert "lost workers" not in said and "\n" not in said
    line = inspect.getsourcelines(Misread.read)[1] + 2
    place = f"(test_permanent_failures.py:{line})"
    assert said.endswith(f": training stopped by IndexError: list index out of range {place}; mend it and run again")


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_cannot_be_sent_is_named(data, tmp_path, workers):
    said = train(data, tmp_path, workers, Held())
    assert "lost workers" not in said and "\n" not in said
    assert "cannot pickle '_thread.lock' object" in said


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_of_a_module_that_workers_have_not_is_named(data, tmp_path, workers, monkeypatch):
    module = types.ModuleType("only_here")
    module.Here = type("Here", (Mlm,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    said = train(data, tmp_path, workers, module.Here())
    assert "lost workers" not in said and "\n" not in said
    assert "No module named 'only_here'" in said


LOST = WorkerHealthCheckFailedError("its process is gone", ActorDiedError())
STOPPED, OF_THE_GROUP = TrainingStopped("IndexError"), WorkerFailed("RuntimeError: gloo: connection closed by peer")


@pytest.mark.parametrize(
    ("failures", "decision"),
    [
        ([STOPPED], FailureDecision.RAISE),
        ([OF_THE_GROUP, STOPPED], FailureDecision.RAISE),
        ([OF_THE_GROUP], FailureDecision.RETRY),
        ([LOST, OF_THE_GROUP], FailureDecision.RETRY),
        ([STOPPED, LOST], FailureDecision.RETRY),  # what stopped may be for want of the lost one
    ],
)
def test_of_several_workers_only_lost_ones_are_worth_another_attempt(failures, decision):
    policy = OnlyLostWorkers(FailureConfig(max_failures=1))
    error = WorkerGroupError("workers failed", dict(enumerate(failures)))
    assert policy.make_decision(error) == decision
    assert policy.make_decision(error) == FailureDecision.RAISE, "one retry was given"


RUNTIME_ERRORS = {"index 9 is out of bounds": False, "[gloo/tcp/pair.cc:534] Connection closed by peer": True}


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (IndexError("list index out of range"), False),
        (FileNotFoundError(2, "no such file"), False),
        (OSError(28, "No space left on device"), True),
        (ConnectionResetError(104, "reset"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (torch.distributed.DistBackendError("NCCL error"), True),
        (ActorDiedError(), True),
        *((RuntimeError(words), passes) for words, passes in RUNTIME_ERRORS.items()),
    ],
)
def test_faults_of_a_node_or_its_network_may_pass_and_mistakes_of_code_do_not(error, may_pass):
    assert driver._may_pass(error) == may_pass
